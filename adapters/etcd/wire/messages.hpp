#pragma once

// The messages of etcd's v3 API in their JSON form (proto3 JSON: 64-bit numbers are strings, bytes are
// base64, and what is 0, false or empty is left out). Functions that read throw std::exception for what is no
// such message. Thread-safe.

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "adapters/etcd/txn.hpp"
#include "adapters/etcd/wire/answers.hpp"
#include "adapters/etcd/wire/errors.hpp"

namespace fenceguard::etcd {

[[nodiscard]] std::string txn_request(const Txn& txn);
[[nodiscard]] std::string range_request(const Op& range);
[[nodiscard]] std::string grant_request(std::int64_t id, std::int64_t ttl_s);
[[nodiscard]] std::string lease_request(std::int64_t id);
[[nodiscard]] std::string authenticate_request(const std::string& user, const std::string& password);
// Deletions of key from revision on.
[[nodiscard]] std::string watch_request(const std::string& key, std::int64_t revision);

[[nodiscard]] boost::json::object parse_object(std::string_view text);
[[nodiscard]] TxnAnswer txn_answer(const boost::json::object& object);
[[nodiscard]] OpAnswer range_answer(const boost::json::object& object);
[[nodiscard]] LeaseAnswer lease_answer(const boost::json::object& object);
[[nodiscard]] MemberAnswer member_answer(const boost::json::object& object);
[[nodiscard]] std::string token_answer(const boost::json::object& object);

// What a streamed answer of the gateway holds inside: {"result": …}; the object itself where it is none.
[[nodiscard]] const boost::json::object& result_in(const boost::json::object& object);

enum class WatchNews { nothing, deleted, over };
[[nodiscard]] WatchNews watch_answer(const boost::json::object& object);

// What body, an answer that is no success, says; whatever it is.
[[nodiscard]] Refusal refusal_in(int http_status, const std::string& body);

}  // namespace fenceguard::etcd
