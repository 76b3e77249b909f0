#include "adapters/etcd/wire/messages.hpp"

#include <boost/json.hpp>
#include <charconv>
#include <stdexcept>

#include "adapters/etcd/wire/base64.hpp"

namespace fenceguard::etcd {
namespace {

namespace json = boost::json;

std::string text_of(std::int64_t number) {
  return std::to_string(number);
}

// 64-bit numbers are signed in most fields; ids of members and clusters use all 64 bits.
std::int64_t number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, number);
      read.ec == std::errc{} && read.ptr == end) {
    return number;
  }
  std::uint64_t wide = 0;
  const auto read = std::from_chars(text.data(), end, wide);
  if (read.ec != std::errc{} || read.ptr != end) throw std::runtime_error{"not a number"};
  return static_cast<std::int64_t>(wide);
}

std::int64_t number_at(const json::object& object, std::string_view name) {
  const auto* const value = object.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_string()) return number_in(value->get_string());
  return value->to_number<std::int64_t>();
}

std::string bytes_at(const json::object& object, std::string_view name) {
  const auto* const value = object.if_contains(name);
  if (value == nullptr) return {};
  auto bytes = from_base64(value->as_string());
  if (!bytes) throw std::runtime_error{"not base64"};
  return *std::move(bytes);
}

bool flag_at(const json::object& object, std::string_view name) {
  const auto* const value = object.if_contains(name);
  return value != nullptr && value->as_bool();
}

std::string string_at(const json::object& object, std::string_view name) {
  const auto* const value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string{value->get_string()} : std::string{};
}

void put_range(json::object& object, const std::string& key, const std::string& range_end) {
  object["key"] = to_base64(key);
  if (!range_end.empty()) object["range_end"] = to_base64(range_end);
}

json::object to_json(const Compare& compare) {
  static constexpr const char* results[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL"};
  json::object object{{"result", results[static_cast<int>(compare.is)]}};
  put_range(object, compare.key, compare.range_end);
  const auto number = text_of(compare.number);
  switch (compare.target) {
    case Compare::Target::value:
      object["target"] = "VALUE";
      object["value"] = to_base64(compare.value);
      break;
    case Compare::Target::create_revision:
      object["target"] = "CREATE";
      object["create_revision"] = number;
      break;
    case Compare::Target::mod_revision:
      object["target"] = "MOD";
      object["mod_revision"] = number;
      break;
    case Compare::Target::version:
      object["target"] = "VERSION";
      object["version"] = number;
      break;
    case Compare::Target::lease:
      object["target"] = "LEASE";
      object["lease"] = number;
      break;
  }
  return object;
}

json::object range_to_json(const Op& op) {
  json::object object;
  put_range(object, op.key, op.range_end);
  if (op.limit > 0) object["limit"] = text_of(op.limit);
  if (op.keys_only) object["keys_only"] = true;
  if (op.create_revision_max > 0) object["max_create_revision"] = text_of(op.create_revision_max);
  if (op.sort != Op::Sort::none) {
    object["sort_order"] = op.sort == Op::Sort::by_create_revision_descending ? "DESCEND" : "ASCEND";
    object["sort_target"] = op.sort == Op::Sort::by_key ? "KEY" : "CREATE";
  }
  return object;
}

json::object to_json(const Op& op) {
  if (op.kind == Op::Kind::range) return {{"request_range", range_to_json(op)}};
  json::object object;
  put_range(object, op.key, op.range_end);
  if (op.kind == Op::Kind::remove) return {{"request_delete_range", std::move(object)}};
  if (op.keeps_value)
    object["ignore_value"] = true;
  else
    object["value"] = to_base64(op.value);
  if (op.keeps_lease) object["ignore_lease"] = true;
  if (op.lease != 0) object["lease"] = text_of(op.lease);
  return {{"request_put", std::move(object)}};
}

template <class T>
json::array to_json(const std::vector<T>& all) {
  json::array array;
  for (const auto& one : all) array.push_back(to_json(one));
  return array;
}

KeyValue key_value_of(const json::object& object) {
  return {
      bytes_at(object, "key"),           bytes_at(object, "value"),    number_at(object, "create_revision"),
      number_at(object, "mod_revision"), number_at(object, "version"), number_at(object, "lease")};
}

OpAnswer op_answer(const json::object& object) {
  if (const auto* const range = object.if_contains("response_range")) return range_answer(range->as_object());
  OpAnswer answer;
  if (const auto* const removal = object.if_contains("response_delete_range"))
    answer.count = number_at(removal->as_object(), "deleted");
  return answer;
}

}  // namespace

std::string txn_request(const Txn& txn) {
  json::object object;
  if (!txn.compare.empty()) object["compare"] = to_json(txn.compare);
  if (!txn.then.empty()) object["success"] = to_json(txn.then);
  if (!txn.otherwise.empty()) object["failure"] = to_json(txn.otherwise);
  return json::serialize(object);
}

std::string range_request(const Op& range) {
  return json::serialize(range_to_json(range));
}

std::string grant_request(std::int64_t id, std::int64_t ttl_s) {
  return json::serialize(json::object{{"ID", text_of(id)}, {"TTL", text_of(ttl_s)}});
}

std::string lease_request(std::int64_t id) {
  return json::serialize(json::object{{"ID", text_of(id)}});
}

std::string authenticate_request(const std::string& user, const std::string& password) {
  return json::serialize(json::object{{"name", user}, {"password", password}});
}

std::string watch_request(const std::string& key, std::int64_t revision) {
  const json::object create{
      {"key", to_base64(key)}, {"start_revision", text_of(revision)}, {"filters", json::array{"NOPUT"}}};
  return json::serialize(json::object{{"create_request", create}});
}

json::object parse_object(std::string_view text) {
  return std::move(json::parse(text).as_object());
}

TxnAnswer txn_answer(const json::object& object) {
  TxnAnswer answer;
  answer.succeeded = flag_at(object, "succeeded");
  const auto& header = object.at("header").as_object();
  answer.revision = number_at(header, "revision");
  answer.term = number_at(header, "raft_term");
  if (const auto* const responses = object.if_contains("responses")) {
    for (const auto& response : responses->as_array())
      answer.answers.push_back(op_answer(response.as_object()));
  }
  return answer;
}

OpAnswer range_answer(const json::object& object) {
  OpAnswer answer;
  answer.count = number_at(object, "count");
  answer.has_more = flag_at(object, "more");
  if (const auto* const found = object.if_contains("kvs")) {
    for (const auto& one : found->as_array()) answer.found.push_back(key_value_of(one.as_object()));
  }
  return answer;
}

LeaseAnswer lease_answer(const json::object& object) {
  return {number_at(object, "ID"), std::chrono::seconds{number_at(object, "TTL")},
          number_at(object.at("header").as_object(), "raft_term")};
}

MemberAnswer member_answer(const json::object& object) {
  const auto& header = object.at("header").as_object();
  MemberAnswer member;
  member.version = string_at(object, "version");
  member.leader = number_at(object, "leader");
  member.id = number_at(header, "member_id");
  member.cluster = number_at(header, "cluster_id");
  member.revision = number_at(header, "revision");
  member.database_bytes = number_at(object, "dbSize");
  if (const auto* const errors = object.if_contains("errors")) {
    for (const auto& error : errors->as_array()) member.errors.emplace_back(error.as_string());
  }
  return member;
}

std::string token_answer(const json::object& object) {
  auto token = string_at(object, "token");
  if (token.empty()) throw std::runtime_error{"no token"};
  return token;
}

const json::object& result_in(const json::object& object) {
  const auto* const result = object.if_contains("result");
  return result != nullptr ? result->as_object() : object;
}

WatchNews watch_answer(const json::object& object) {
  if (object.contains("error")) return WatchNews::over;
  const auto& result = result_in(object);
  if (const auto* const events = result.if_contains("events"); events != nullptr) {
    // Only deletions were asked for.
    if (!events->as_array().empty()) return WatchNews::deleted;
  }
  return flag_at(result, "canceled") ? WatchNews::over : WatchNews::nothing;
}

Refusal refusal_in(int http_status, const std::string& body) {
  Refusal refusal{http_status, 0, {}};
  try {
    const auto object = parse_object(body);
    // A stream that fails says {"error": {…}}, a call {"error": "…", "message": "…", "code": n}.
    const auto* const inner = object.if_contains("error");
    const auto& error = inner != nullptr && inner->is_object() ? inner->get_object() : object;
    refusal.text = string_at(error, "message");
    refusal.code = static_cast<int>(number_at(error, error.contains("grpc_code") ? "grpc_code" : "code"));
  } catch (const std::exception&) {
    // Not etcd's own words: the status must do.
  }
  return refusal;
}

}  // namespace fenceguard::etcd
