#include "adapters/sqlite/lock/lease_table.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::sqlite {
namespace {

std::string read_boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string id;
  if (!(file >> id))
    throw Unavailable("/proc/sys/kernel/random/boot_id cannot be read: leases need it to notice a reboot");
  return id;
}

// By how much this process's time namespace shows more than the machine's clock since boot.
std::chrono::nanoseconds read_clock_offset() {
  static constexpr auto of_the_machine = "time:[4026531834]";  // PROC_TIME_INIT_INO of the kernel
  std::error_code error;
  const auto name = std::filesystem::read_symlink("/proc/self/ns/time", error);
  if (error == std::errc::no_such_file_or_directory || name == of_the_machine) return {};
  // The offsets in the file are those of the namespace that children get.
  if (!error && name == std::filesystem::read_symlink("/proc/self/ns/time_for_children", error)) {
    std::ifstream file{"/proc/self/timens_offsets"};
    std::string clock;
    for (std::int64_t seconds = 0, rest = 0; file >> clock >> seconds >> rest;)
      if (clock == "boottime") return std::chrono::seconds{seconds} + std::chrono::nanoseconds{rest};
  }
  throw Unavailable(
      "this process has a time namespace of its own, and /proc/self/timens_offsets does not tell its offset "
      "from the machine's clock: leases need it to know when they end");
}

}  // namespace

LeaseTable::LeaseTable(sqlite3* connection)
    : boot_id_{read_boot_id()},
      clock_offset_{read_clock_offset()},
      find_{connection,
            "SELECT token, holder, expires_ms FROM fenceguard_lease WHERE resource = ?1 AND boot_id = ?2 AND "
            "expires_ms > ?3"},
      store_{connection, "INSERT OR REPLACE INTO fenceguard_lease VALUES (?1, ?2, ?3, ?4, ?5)"},
      remove_{connection, "DELETE FROM fenceguard_lease WHERE resource = ?1"},
      lowest_{connection, "SELECT min(token) FROM fenceguard_lease WHERE boot_id = ?1 AND expires_ms > ?2"},
      list_{connection,
            "SELECT resource, token, expires_ms, boot_id FROM fenceguard_lease "
            "WHERE resource > ?1 AND resource >= ?2 ORDER BY resource LIMIT ?3"},
      load_counter_{connection, "SELECT last, checksum FROM fenceguard_counter WHERE id = 1"},
      store_counter_{connection, "INSERT OR REPLACE INTO fenceguard_counter VALUES (1, ?1, ?2)"} {}

std::int64_t LeaseTable::now_ms() const {
  const auto now = BootClock::now().time_since_epoch() - clock_offset_;
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::optional<LeaseRecord> LeaseTable::find(const Resource& resource) {
  const std::int64_t now = now_ms();
  auto& row = find_.bind(std::string_view{resource.name()}, std::string_view{boot_id_}, now);
  const ResetAtEnd reset{row};
  if (!row.step()) return std::nullopt;
  return LeaseRecord{{resource, Token{row.integer(0)}, Holder{std::string{row.text(1)}}, std::nullopt},
                     std::chrono::milliseconds{row.integer(2) - now}};
}

LeaseTable::Part LeaseTable::list(const FenceListing& listing) {
  const std::int64_t now = now_ms();
  Part part;
  std::vector<std::string> expired;
  {
    auto& row = list_.bind(std::string_view{listing.after}, std::string_view{listing.prefix}, rows_at_once);
    const ResetAtEnd reset{row};
    // What starts with the prefix stands together, from the prefix itself on.
    std::int64_t rows = 0;
    for (; row.step() && row.text(0).starts_with(listing.prefix); ++rows) {
      part.next = row.text(0);
      if (row.text(3) != boot_id_ || row.integer(2) <= now) {
        expired.push_back(part.next);
        continue;
      }
      const std::chrono::milliseconds left{row.integer(2) - now};
      if (!part.page.take({{Resource{part.next}, Token{row.integer(1)}, {}, std::nullopt}, left}, listing))
        break;
    }
    if (rows < rows_at_once) part.next.clear();
  }
  for (const auto& resource : expired) remove_.bind(std::string_view{resource}).run();
  return part;
}

std::variant<Grant, LockBusy> LeaseTable::acquire(const Resource& resource, const Holder& holder,
                                                  std::chrono::milliseconds ttl) {
  if (const auto present = find(resource)) {
    if (present->claim.holder != holder) return LockBusy{*present->remaining};
    const auto longest = std::max(ttl, *present->remaining);
    store(present->claim, longest);
    return Grant{present->claim, longest, false, {}};
  }
  const Claim claim{resource, draw(), holder, std::nullopt};
  store(claim, ttl);
  return Grant{claim, ttl, true, {}};
}

Renewal LeaseTable::renew(const Claim& claim, std::chrono::milliseconds ttl) {
  const auto present = find(claim.resource);
  if (!present || present->claim.token != claim.token || present->claim.holder != claim.holder)
    return Renewal::lost;
  store(present->claim, ttl);
  return Renewal::renewed;
}

Release LeaseTable::release(const Claim& claim) {
  const auto present = find(claim.resource);
  if (!present || present->claim.token != claim.token || present->claim.holder != claim.holder)
    return Release::not_held;
  remove_.bind(std::string_view{claim.resource.name()}).run();
  return Release::released;
}

Release LeaseTable::end(const Resource& resource) {
  if (!find(resource)) return Release::not_held;
  remove_.bind(std::string_view{resource.name()}).run();
  return Release::released;
}

void LeaseTable::raise(Token mark) {
  if (mark.value() > counter()) store_counter(mark.value());
}

Token LeaseTable::draw() {
  const std::int64_t last = counter();
  if (last == std::numeric_limits<std::int64_t>::max())
    throw Unavailable("the counter of this token source is used up");
  store_counter(last + 1);
  return Token{last + 1};
}

Token LeaseTable::lowest_live() {
  const std::int64_t last = counter();
  const std::int64_t next = last == std::numeric_limits<std::int64_t>::max() ? last : last + 1;
  auto& row = lowest_.bind(std::string_view{boot_id_}, now_ms());
  const ResetAtEnd reset{row};
  const bool is_held = row.step() && !row.is_null(0);
  return Token{is_held ? std::min(row.integer(0), next) : next};
}

void LeaseTable::store(const Claim& claim, std::chrono::milliseconds ttl) {
  store_
      .bind(std::string_view{claim.resource.name()}, claim.token.value(), std::string_view{claim.holder.id()},
            now_ms() + ttl.count(), std::string_view{boot_id_})
      .run();
}

std::int64_t LeaseTable::counter() {
  auto& row = load_counter_.bind();
  const ResetAtEnd reset{row};
  if (!row.step()) return 0;
  const std::int64_t last = row.integer(0);
  const bool is_sound = row.integer(1) == Checksum{}.add(last).value() && last >= 0;
  if (!is_sound) throw Unavailable("the token counter is damaged (its checksum is wrong): restore a backup");
  return last;
}

void LeaseTable::store_counter(std::int64_t last) {
  store_counter_.bind(last, Checksum{}.add(last).value()).run();
}

}  // namespace fenceguard::sqlite
