#include "adapters/sqlite/objects/object_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t checksum(std::string_view path, std::string_view body, std::string_view content_type,
                      std::int64_t version) {
  return Checksum{}.add(path).add(body).add(content_type).add(version).value();
}

[[noreturn]] void throw_damaged(std::string_view path) {
  throw Unavailable(
      fmt::format("the object '{}' is damaged (its checksum is wrong): restore a backup", path));
}

std::string_view without_weakness(std::string_view tag) {
  return tag.substr(0, 2) == "W/" ? tag.substr(2) : tag;
}

}  // namespace

ObjectTable::ObjectTable(sqlite3* connection)
    : version_{connection, "SELECT version FROM fenceguard_object WHERE path = ?1"},
      load_{connection,
            "SELECT body, content_type, version, checksum FROM fenceguard_object WHERE path = ?1"},
      store_{connection, "INSERT OR REPLACE INTO fenceguard_object VALUES (?1, ?2, ?3, ?4, ?5)"},
      remove_{connection, "DELETE FROM fenceguard_object WHERE path = ?1"},
      all_{connection,
           "SELECT path, body, content_type, version, checksum FROM fenceguard_object ORDER BY path"} {}

std::optional<std::int64_t> ObjectTable::version(std::string_view path) {
  auto& row = version_.bind(path);
  const ResetAtEnd reset{row};
  if (!row.step()) return std::nullopt;
  return row.integer(0);
}

std::optional<Object> ObjectTable::load(std::string_view path, std::string_view generation) {
  auto& row = load_.bind(path);
  const ResetAtEnd reset{row};
  if (!row.step()) return std::nullopt;
  Object object{std::string{row.blob(0)}, std::string{row.text(1)}, etag(generation, row.integer(2)), 0};
  object.size_bytes = static_cast<std::int64_t>(object.body.size());
  const bool is_sound = row.integer(3) == checksum(path, object.body, object.content_type, row.integer(2));
  if (!is_sound) throw_damaged(path);
  return object;
}

void ObjectTable::store(const ObjectWrite& write, std::int64_t version) {
  store_
      .bind(std::string_view{write.path}, Blob{write.body}, std::string_view{write.content_type}, version,
            checksum(write.path, write.body, write.content_type, version))
      .run();
}

void ObjectTable::remove(std::string_view path) {
  remove_.bind(path).run();
}

void ObjectTable::verify() {
  auto& row = all_.bind();
  const ResetAtEnd reset{row};
  std::string last;
  while (row.step()) {
    const bool is_text = row.is_text(0);  // asked first, because reading it as text makes it one
    const auto path = row.text(0);
    const bool is_sound = row.integer(4) == checksum(path, row.blob(1), row.text(2), row.integer(3));
    if (!is_text || !is_sound || path <= last) throw_damaged(path);
    last = path;
  }
}

std::string etag(std::string_view generation, std::int64_t version) {
  return fmt::format("\"{}-{}\"", generation, version);
}

bool preconditions_hold(const ObjectWrite& write, const std::optional<std::string>& present_etag) {
  if (const auto& wanted = write.if_match) {
    if (!present_etag) return false;
    const auto& tags = wanted->etags;
    if (!wanted->any && std::find(tags.begin(), tags.end(), *present_etag) == tags.end()) return false;
  }
  if (const auto& unwanted = write.if_none_match; unwanted && present_etag) {
    const auto is_present = [&](const std::string& tag) { return without_weakness(tag) == *present_etag; };
    if (unwanted->any || std::any_of(unwanted->etags.begin(), unwanted->etags.end(), is_present))
      return false;
  }
  return true;
}

}  // namespace fenceguard::sqlite
