// SPDX-License-Identifier: Apache-2.0
#include "merge/store_output.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_error.h"

namespace ingero::merge {
namespace {

Status NoStore(const std::string& path) {
  return Status::Error(path +
                       " is no store, and is left alone; name another output, "
                       "or remove it");
}

}  // namespace

// Of LMDB's two meta pages: magic at byte 16, after the page's header (mdb.c).
bool IsLmdb(const std::string& path) {
  constexpr uint32_t kMagic = 0xBEEFC0DE;
  const auto file = InputFile::Open(path);
  if (!file.ok()) return false;
  const auto size = file->Size();
  bool found = size.ok() && *size == 0;
  for (const uint64_t page : {0, 4096}) {
    uint32_t magic = 0;
    const auto got = file->ReadAt(page + 16, &magic, sizeof(magic));
    found = found || (got.ok() && *got == sizeof(magic) && magic == kMagic);
  }
  return found;
}

Status CheckStoreOutput(const std::string& store, bool own) {
  struct stat st;
  if (stat(store.c_str(), &st) != 0) {
    if (errno != ENOENT) return CannotWrite(store, errno);
    std::string folder = store;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    const size_t slash = folder.rfind('/');
    folder = slash == folder.npos ? "."
             : slash == 0         ? "/"
                                  : folder.substr(0, slash);
    if (access((folder + "/.").c_str(), W_OK | X_OK) != 0)
      return CannotWrite(store, errno);
    return {};
  }
  if (!S_ISDIR(st.st_mode)) return NoStore(store);
  if (access((store + "/.").c_str(), W_OK | X_OK) != 0)
    return CannotWrite(store, errno);
  const std::string data = store + "/data.mdb";
  if (own || access(data.c_str(), F_OK) != 0) return {};
  if (access(data.c_str(), R_OK) != 0) return CannotOpen(data, errno);
  return IsLmdb(data) ? Status() : NoStore(data);
}

Status CheckNewStore(const std::string& store) {
  INGERO_RETURN_IF_ERROR(CheckStoreOutput(store));
  if (access(store.c_str(), F_OK) != 0) return {};
  return Status::Error(store +
                       ": exists; name another store with -o, or remove it");
}

Result<Leftover> MakeStoreFolder(const std::string& store, bool own) {
  INGERO_RETURN_IF_ERROR(CheckStoreOutput(store, own));
  INGERO_ASSIGN_OR_RETURN(Leftover folder, MakeNewFolder(store, 0755));
  if (own) folder.Keep();
  return folder;
}

}  // namespace ingero::merge
