#pragma once

// Txn: a transaction of etcd, and the conditions and operations that it is made of. What it does is one
// atomic step in the order of all others; one that only reads may be answered by a member's own state.
//
// Values; the functions are thread-safe.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace fenceguard::etcd {

// A key with what is known of it. Keys and values are bytes here and base64 on the wire.
struct KeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  std::int64_t version = 0;
  std::int64_t lease = 0;
};

// One condition of a transaction.
struct Compare {
  enum class Target { value, create_revision, mod_revision, version, lease };
  enum class Is { equal, greater, less, not_equal };
  Target target = Target::value;
  Is is = Is::equal;
  std::string key;
  std::string value{};      // of Target::value
  std::int64_t number = 0;  // of the others
  std::string range_end{};  // if set: of every key from key up to it, itself excluded
};

[[nodiscard]] Compare value_is(std::string key, std::string value);
[[nodiscard]] Compare is_absent(std::string key);                          // its create revision is 0
[[nodiscard]] Compare created_at(std::string key, std::int64_t revision);  // and so exists

// One operation of a transaction, or a call of its own.
struct Op {
  enum class Kind { put, remove, range };
  enum class Sort { none, by_key, by_create_revision, by_create_revision_descending };
  Kind kind = Kind::range;
  std::string key;
  std::string value{};       // put
  std::string range_end{};   // range, remove: if set, every key from key up to it, itself excluded
  std::int64_t lease = 0;    // put
  bool keeps_value = false;  // put: of a key that exists; its value stays
  bool keeps_lease = false;  // put: of a key that exists; its lease stays
  std::int64_t limit = 0;    // range; 0: none
  bool keys_only = false;    // range
  Sort sort = Sort::none;    // range
  std::int64_t create_revision_max = 0;  // range: only keys that were created up to it; 0: all
};

[[nodiscard]] Op put(std::string key, std::string value, std::int64_t lease = 0);
[[nodiscard]] Op get(std::string key);
[[nodiscard]] Op get_all(std::string prefix);
[[nodiscard]] Op remove(std::string key);
[[nodiscard]] Op remove_all(std::string prefix);

// What comes after every key that starts with prefix.
[[nodiscard]] std::string end_of_prefix(std::string prefix);

struct OpAnswer {
  std::vector<KeyValue> found;  // range
  std::int64_t count = 0;       // range: how many there are; remove: how many were
  bool has_more = false;        // range with a limit
};

[[nodiscard]] inline bool only_reads(const std::vector<Op>& ops) {
  return std::ranges::all_of(ops, [](const Op& op) { return op.kind == Op::Kind::range; });
}

struct Txn {
  std::vector<Compare> compare;  // all must hold
  std::vector<Op> then{};
  std::vector<Op> otherwise{};
};

struct TxnAnswer {
  bool succeeded = false;  // all compares held, and 'then' was done
  std::int64_t revision = 0;
  std::vector<OpAnswer> answers;
  std::int64_t term = 0;  // of raft, at the member that answered, after it was done
};

}  // namespace fenceguard::etcd
