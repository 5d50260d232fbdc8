// SPDX-License-Identifier: Apache-2.0
// That layout.golden is complete, and the tables of wire.h are in order. The
// offsets themselves are compared by the compiler (layout_asserts.h).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "layout_asserts.h"  // as C++20

namespace ingero {
namespace {

struct Field {
  std::string member;
  size_t offset, size;
};

std::map<std::string, size_t> GoldenStructs() {
  std::map<std::string, size_t> structs;
#define STRUCT(name, size) structs[#name] = size;
#define FIELD(name, member, offset, size)
#define VALUE(id, value)
#include "layout.golden"
#undef STRUCT
#undef FIELD
#undef VALUE
  return structs;
}

std::map<std::string, std::vector<Field>> GoldenFields() {
  std::map<std::string, std::vector<Field>> fields;
#define STRUCT(name, size)
#define FIELD(name, member, offset, size) \
  fields[#name].push_back({#member, offset, size});
#define VALUE(id, value)
#include "layout.golden"
#undef STRUCT
#undef FIELD
#undef VALUE
  return fields;
}

std::set<std::string> GoldenValues() {
  std::set<std::string> values;
#define STRUCT(name, size)
#define FIELD(name, member, offset, size)
#define VALUE(id, value) values.insert(#id);
#include "layout.golden"
#undef STRUCT
#undef FIELD
#undef VALUE
  return values;
}

// The lines of a struct's or enum's body in wire.h, by its name.
std::map<std::string, std::string> Bodies(const std::string& keyword) {
  std::ifstream file(INGERO_WIRE_H_PATH);
  std::map<std::string, std::string> bodies;
  std::string line, name;
  const std::regex begin("^" + keyword + " (\\w+) \\{$");
  std::smatch match;
  while (std::getline(file, line)) {
    if (name.empty()) {
      if (std::regex_match(line, match, begin)) bodies[name = match[1]];
    } else if (line == "};") {
      name.clear();
    } else {
      bodies[name] += line + "\n";
    }
  }
  return bodies;
}

TEST(LayoutTest, GoldenNamesEveryStruct) {
  std::set<std::string> in_header, in_golden;
  for (const auto& [name, body] : Bodies("struct")) in_header.insert(name);
  for (const auto& [name, size] : GoldenStructs()) in_golden.insert(name);
  EXPECT_GT(in_header.size(), 10u);
  EXPECT_EQ(in_header, in_golden);
}

// Each member begins where the one before ends: so none is missing in the
// golden file, and the compiler put no padding between them.
TEST(LayoutTest, MembersFollowWithoutGaps) {
  const std::map<std::string, std::vector<Field>> fields = GoldenFields();
  for (const auto& [name, size] : GoldenStructs()) {
    size_t end = 0;
    for (const Field& field : fields.at(name)) {
      EXPECT_EQ(field.offset, end) << name << "." << field.member;
      end = field.offset + field.size;
    }
    EXPECT_EQ(end, size) << name;
  }
}

TEST(LayoutTest, GoldenNamesEveryWrittenOutValue) {
  const std::set<std::string> golden = GoldenValues();
  const std::regex value("(INGERO_\\w+) =");
  size_t seen = 0;
  for (const auto& [name, body] : Bodies("enum"))
    for (std::sregex_iterator it(body.begin(), body.end(), value), end;
         it != end; ++it, ++seen)
      EXPECT_TRUE(golden.count((*it)[1]) == 1) << name << ": " << (*it)[1];
  EXPECT_GT(seen, 30u);
}

TEST(LayoutTest, GoldenNamesEveryRowOfTheTables) {
  const std::set<std::string> golden = GoldenValues();
#define X(id, value, ...) EXPECT_EQ(golden.count("INGERO_" #id), 1u) << #id;
  INGERO_LOSSES(X)
#undef X
#define X(id, value, type) \
  EXPECT_EQ(golden.count("INGERO_RECORD_" #id), 1u) << #id;
  INGERO_RECORDS(X)
#undef X
#define X(id, value, name) \
  EXPECT_EQ(golden.count("INGERO_CLASS_" #id), 1u) << #id;
  INGERO_CLASSES(X)
#undef X
}

TEST(LossTableTest, EveryLossSaysWhatHappenedAndWhatToDo) {
  std::set<int> values;
  std::set<std::string> ids;
#define X(id, value, kebab, severity, text)                              \
  EXPECT_TRUE(values.insert(value).second) << #id << ": value taken";    \
  EXPECT_TRUE(ids.insert(kebab).second) << #id << ": id taken";          \
  EXPECT_TRUE(value > 0 && value < INGERO_LOSS_MAX) << #id;              \
  EXPECT_TRUE(severity == 1 || severity == 2) << #id;                    \
  EXPECT_GT(std::string(text).size(), 20u) << #id;                       \
  EXPECT_TRUE(std::regex_match(kebab, std::regex("[a-z]+(-[a-z]+)*")))   \
      << #id;
  INGERO_LOSSES(X)
#undef X
  EXPECT_FALSE(values.empty());
}

TEST(ClassTableTest, ValuesAndNamesAreUnique) {
  std::set<int> values;
  std::set<std::string> names;
#define X(id, value, name)                                            \
  EXPECT_TRUE(values.insert(value).second) << #id << ": value taken"; \
  EXPECT_TRUE(names.insert(name).second) << #id << ": name taken";    \
  EXPECT_LT(value, INGERO_CLASS_MAX) << #id;
  INGERO_CLASSES(X)
#undef X
}

TEST(RecordTableTest, KindsAreUniqueAndNeverZero) {
  std::set<int> values = {INGERO_RECORD_STACK};
#define X(id, value, type)                                            \
  EXPECT_TRUE(values.insert(value).second) << #id << ": value taken"; \
  EXPECT_TRUE(value > 0 && value < 256) << #id;
  INGERO_RECORDS(X)
#undef X
}

}  // namespace
}  // namespace ingero
