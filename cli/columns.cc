// SPDX-License-Identifier: Apache-2.0
#include "cli/columns.h"

#include <endian.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/io.h"

namespace ingero::cli {
namespace {

std::string Csv(const query::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return std::to_string(*number);
  if (const auto* real = std::get_if<double>(&value))
    return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->find_first_of("\",\r\n") == std::string::npos) return *text;
    std::string quoted = "\"";
    for (const char c : *text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
  }
  return "";
}

using query::Type;
using query::Value;

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN);

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

const char* NameOf(std::optional<Type> type) {
  if (!type) return "null";
  switch (*type) {
    case Type::kInteger: return "integer";
    case Type::kReal: return "real";
    case Type::kText: return "text";
  }
  return "";
}

std::optional<Type> TypeOf(const Value& value) {
  if (std::holds_alternative<int64_t>(value)) return Type::kInteger;
  if (std::holds_alternative<double>(value)) return Type::kReal;
  if (std::holds_alternative<std::string>(value)) return Type::kText;
  return std::nullopt;
}

void WriteBuffer(std::FILE* out, std::string_view bytes) {
  Write(out, BytesOf(uint64_t{bytes.size()}));
  Write(out, bytes);
}

}  // namespace

std::string CsvLine(const std::vector<query::Value>& row) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0) line += ',';
    line += Csv(row[i]);
  }
  return line + "\n";
}

void ColumnWriter::Begin(const std::vector<std::string>& names,
                         const std::vector<std::optional<Type>>& types) {
  for (size_t i = 0; i < names.size(); ++i)
    columns_.push_back({names[i], types[i], false, {}});
}

Status ColumnWriter::Add(const std::vector<Value>& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    Column& c = columns_[i];
    if (const auto* text = std::get_if<std::string>(&row[i]))
      text_bytes_ += text->size();
    const std::optional<Type> type = TypeOf(row[i]);
    // Integers among reals are reals.
    const bool widens = c.type == Type::kInteger && type == Type::kReal;
    if (type && !c.fixed && (!c.type || widens)) {
      c.type = type;
    } else if (type && type != c.type &&
               !(c.type == Type::kReal && type == Type::kInteger)) {
      return Status::Error(fmt::format(
          "column {} holds values of several types ({} and {}); CAST them to "
          "one",
          c.name, NameOf(c.type), NameOf(type)));
    }
    c.values.push_back(row[i]);
  }
  ++rows_;
  if (rows_ == kBatchRows || text_bytes_ > kBatchTextBytes) Flush();
  return {};
}

void ColumnWriter::Flush() {
  if (!begun_) {
    begun_ = true;
    nlohmann::ordered_json head = {
        {"version", 1}, {"columns", nlohmann::ordered_json::array()}};
    for (Column& c : columns_) {
      c.fixed = true;
      head["columns"].push_back({{"name", c.name}, {"type", NameOf(c.type)}});
    }
    const std::string text = head.dump(
        -1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    Write(out_, "INGCOL01");
    Write(out_, BytesOf(static_cast<uint32_t>(text.size())));
    Write(out_, text);
  }
  if (rows_ == 0) return;
  Write(out_, BytesOf(static_cast<uint32_t>(rows_)));
  for (Column& c : columns_) {
    if (c.type) {
      std::string valid((rows_ + 7) / 8, '\0');
      for (size_t r = 0; r < rows_; ++r)
        if (!std::holds_alternative<std::monostate>(c.values[r]))
          valid[r / 8] = static_cast<char>(valid[r / 8] | 1 << r % 8);
      WriteBuffer(out_, valid);
      if (*c.type == Type::kText) {
        std::vector<int32_t> offsets{0};
        std::string bytes;
        for (const Value& v : c.values) {
          if (const auto* text = std::get_if<std::string>(&v)) bytes += *text;
          offsets.push_back(static_cast<int32_t>(bytes.size()));
        }
        WriteBuffer(out_, BytesOf(offsets));
        WriteBuffer(out_, bytes);
      } else {
        std::vector<uint64_t> numbers;
        for (const Value& v : c.values) {
          uint64_t bits = 0;
          if (*c.type == Type::kInteger) {
            if (const auto* n = std::get_if<int64_t>(&v))
              bits = static_cast<uint64_t>(*n);
          } else {
            double real = 0;
            if (const auto* d = std::get_if<double>(&v)) real = *d;
            if (const auto* n = std::get_if<int64_t>(&v))
              real = static_cast<double>(*n);
            std::memcpy(&bits, &real, sizeof(bits));
          }
          numbers.push_back(bits);
        }
        WriteBuffer(out_, BytesOf(numbers));
      }
    }
    c.values.clear();
  }
  rows_ = text_bytes_ = 0;
}

void ColumnWriter::Finish() {
  Flush();
  Write(out_, BytesOf(uint32_t{0}));
}

}  // namespace ingero::cli
