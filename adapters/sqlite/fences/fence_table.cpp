#include "adapters/sqlite/fences/fence_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::int64_t no_sequence = -1;

std::int64_t checksum(const NamespaceRow& row) {
  return Checksum{}
      .add(row.floor)
      .add(row.highest)
      .add(row.resources)
      .add(row.object_version)
      .add(row.generation)
      .value();
}

// 0: open; 1: closed; 2: closed by its own holder.
std::int64_t closing_of(const Fence& fence) {
  return fence.finished ? 2 : fence.closed ? 1 : 0;
}

std::int64_t checksum(std::string_view resource, const Fence& fence) {
  return Checksum{}
      .add(resource)
      .add(fence.token.value())
      .add(fence.holder.id())
      .add(fence.sequence ? fence.sequence->value() : no_sequence)
      .add(closing_of(fence))
      .value();
}

[[noreturn]] void throw_damaged(std::string_view what) {
  throw Unavailable(
      fmt::format("{} is damaged (its checksum is wrong): stop, keep a copy, restore a backup, then run "
                  "'fenceguard fence init'",
                  what));
}

// Columns: resource, token, holder, sequence, closed, checksum.
Fence fence_of(const Statement& row) {
  const bool is_text = row.is_text(0);  // asked first, because reading it as text makes it one
  const auto resource = row.text(0);
  try {
    Fence fence{Token{row.integer(1)}, Holder{std::string{row.text(2)}}, std::nullopt, row.integer(4) != 0,
                row.integer(4) == 2};
    if (!row.is_null(3)) fence.sequence = Sequence{row.integer(3)};
    // Bytes that are no text would be listed, but not found by their name.
    if (is_text && checksum(resource, fence) == row.integer(5)) return fence;
  } catch (const InvalidInput&) {
    // No such value was ever written.
  }
  throw_damaged(fmt::format("the fence of '{}'", resource));
}

}  // namespace

FenceTable::FenceTable(sqlite3* connection)
    : load_namespace_{connection,
                      "SELECT floor, highest, resources, object_version, generation, checksum "
                      "FROM fenceguard_namespace WHERE id = 1"},
      store_namespace_{connection,
                       "INSERT OR REPLACE INTO fenceguard_namespace VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)"},
      load_{connection,
            "SELECT resource, token, holder, sequence, closed, checksum FROM fenceguard_fence WHERE resource "
            "= ?1"},
      store_{connection, "INSERT OR REPLACE INTO fenceguard_fence VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
      remove_{connection, "DELETE FROM fenceguard_fence WHERE resource = ?1"},
      list_{connection,
            "SELECT resource, token, holder, sequence, closed, checksum FROM fenceguard_fence "
            "WHERE resource > ?1 AND resource >= ?2 ORDER BY resource LIMIT ?3"},
      list_below_{connection,
                  "SELECT resource, token, holder, sequence, closed, checksum FROM fenceguard_fence "
                  "WHERE token < ?1 AND resource > ?2 ORDER BY resource LIMIT ?3"},
      highest_{connection, "SELECT coalesce(max(token), 0) FROM fenceguard_fence"},
      count_{connection, "SELECT count(*) FROM fenceguard_fence"},
      log_rebase_{
          connection,
          "INSERT INTO fenceguard_rebase VALUES (?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"} {}

std::optional<NamespaceRow> FenceTable::load_namespace() {
  auto& query = load_namespace_.bind();
  const ResetAtEnd reset{query};
  if (!query.step()) return std::nullopt;
  NamespaceRow row{query.integer(0), query.integer(1), query.integer(2), query.integer(3),
                   std::string{query.text(4)}};
  const std::int64_t found = query.integer(5);
  // 'fenceguard sql sqlite' installs a row that no process has used yet, without a checksum.
  const bool is_installed_by_hand = found == 0 && row == NamespaceRow{0, 0, 0, 0, row.generation};
  if (found != checksum(row) && !is_installed_by_hand) throw_damaged("the namespace's row");
  return row;
}

void FenceTable::store_namespace(const NamespaceRow& row) {
  store_namespace_
      .bind(row.floor, row.highest, row.resources, row.object_version, std::string_view{row.generation},
            checksum(row))
      .run();
}

std::optional<Fence> FenceTable::load(std::string_view resource) {
  auto& query = load_.bind(resource);
  const ResetAtEnd reset{query};
  if (!query.step()) return std::nullopt;
  return fence_of(query);
}

FenceView FenceTable::view(const Resource& resource) {
  const auto row = load_namespace();
  return {load(resource.name()), row ? row->floor : 0};
}

void FenceTable::store(std::string_view resource, const Fence& fence) {
  const std::int64_t closed = closing_of(fence);
  const std::string_view holder = fence.holder.id();
  const std::int64_t sum = checksum(resource, fence);
  if (fence.sequence) {
    store_.bind(resource, fence.token.value(), holder, fence.sequence->value(), closed, sum).run();
  } else {
    store_.bind(resource, fence.token.value(), holder, nullptr, closed, sum).run();
  }
}

void FenceTable::remove(std::string_view resource) {
  remove_.bind(resource).run();
}

// Resources with one prefix lie side by side in bytewise order.
FencePage FenceTable::read_page(Statement& query, std::string_view prefix, std::size_t limit) {
  FencePage page;
  const ResetAtEnd reset{query};
  while (query.step()) {
    Fence fence = fence_of(query);  // first, because it finds out whether the name is damaged
    const auto name = query.text(0);
    if (name.substr(0, prefix.size()) != prefix) break;
    if (page.entries.size() == limit) {
      page.has_more = true;
      break;
    }
    page.entries.push_back({Resource{std::string{name}}, std::move(fence)});
  }
  return page;
}

FencePage FenceTable::list(const FenceListing& listing) {
  const auto limit = static_cast<std::int64_t>(listing.limit) + 1;
  return read_page(list_.bind(std::string_view{listing.after}, std::string_view{listing.prefix}, limit),
                   listing.prefix, listing.limit);
}

FencePage FenceTable::list_below(Token lowest_live, std::string_view after, std::size_t limit) {
  return read_page(list_below_.bind(lowest_live.value(), after, static_cast<std::int64_t>(limit) + 1), "",
                   limit);
}

std::int64_t FenceTable::highest() {
  auto& row = highest_.bind();
  const ResetAtEnd reset{row};
  return row.step() ? row.integer(0) : 0;
}

void FenceTable::log_rebase(const FenceStore::Rebase& rebase, std::int64_t from) {
  log_rebase_
      .bind(std::string_view{rebase.resource.name()}, from, rebase.to.value(), std::string_view{rebase.by})
      .run();
}

NamespaceRow FenceTable::fresh_namespace(std::int64_t floor) {
  auto& row = count_.bind();
  const ResetAtEnd reset{row};
  const std::int64_t resources = row.step() ? row.integer(0) : 0;
  return {floor, std::max(floor, highest()), resources, 0, Holder::random().id().substr(0, 8)};
}

}  // namespace fenceguard::sqlite
