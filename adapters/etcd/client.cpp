#include "adapters/etcd/client.hpp"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <type_traits>

#include "adapters/etcd/fences/address_beside_source.hpp"
#include "adapters/etcd/wire/endpoints.hpp"
#include "adapters/etcd/wire/errors.hpp"
#include "adapters/etcd/wire/http.hpp"
#include "adapters/etcd/wire/messages.hpp"
#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::etcd {
namespace {

constexpr int ok = 200;
constexpr int server_error = 500;

struct Call {
  std::string_view path;
  std::string_view doing;  // 'a transaction'
  std::string body;
  bool writes = false;
  std::optional<Hedging> hedging{};
};

void require_fit(const Txn& txn) {
  std::size_t bytes = 0;
  for (const auto& one : txn.compare) bytes += one.key.size() + one.range_end.size() + one.value.size();
  for (const auto* ops : {&txn.then, &txn.otherwise}) {
    for (const auto& op : *ops) bytes += op.key.size() + op.range_end.size() + op.value.size();
  }
  if (bytes <= Client::txn_bytes_max) return;
  throw InvalidInput(fmt::format("a transaction of etcd takes {} bytes of keys and values, and this has {}",
                                 Client::txn_bytes_max, bytes));
}

[[noreturn]] void raise_unanswered(const Call& call, const std::string& why) {
  const auto kind = call.writes ? FaultKind::unknown : FaultKind::unavailable;
  raise_fault({kind, fmt::format("etcd: {} has no answer: {}", call.doing, why)});
}

}  // namespace

// Moves calls to a member that can be reached, with the token of the authentication.
class Client::Wire {
 public:
  explicit Wire(const Address& address)
      : address_{address}, http_{address_}, endpoints_{address_.endpoints.size()} {}

  [[nodiscard]] const Address& address() const noexcept { return address_; }

  // The answer as decode() makes it.
  template <class Decode>
  [[nodiscard]] auto ask(const Call& call, Decode decode) {
    const auto answer = exchange(call);
    if (answer.refusal) raise(call, answer);
    return decoded(call, answer, decode);
  }

  // As ask(), but nothing where the refusal is one that is_expected() knows.
  template <class Decode>
  [[nodiscard]] auto ask_unless(bool (*is_expected)(const Refusal&) noexcept, const Call& call, Decode decode)
      -> std::optional<decltype(decode(boost::json::object{}))> {
    const auto answer = exchange(call);
    if (answer.refusal && is_expected(*answer.refusal)) return std::nullopt;
    if (answer.refusal) raise(call, answer);
    return decoded(call, answer, decode);
  }

  Member status(const std::string& endpoint) {
    const Call call{"/v3/maintenance/status", "asking for the status", "{}", false};
    const auto reply = http_.post({endpoint, call.path, call.body, token(), address_.timeout});
    if (reply.ending != Http::Reply::Ending::answered) throw Unavailable(fmt::format("etcd: {}", reply.why));
    const auto answer = read_or_raise(call, endpoint, reply);
    if (answer.refusal) raise(call, answer);
    return decoded(call, answer, member_answer);
  }

  bool follow(const Deletion& deletion);

 private:
  using Ending = Http::Reply::Ending;

  struct Answer {
    std::string endpoint;
    boost::json::object object;
    std::optional<Refusal> refusal;
  };

  template <class Decode>
  static std::invoke_result_t<Decode, const boost::json::object&> decoded(const Call& call,
                                                                          const Answer& answer,
                                                                          Decode decode) {
    try {
      return decode(answer.object);
    } catch (const std::exception&) {
      raise_unanswered(call, answer.endpoint + " said what is no answer");
    }
  }

  [[noreturn]] static void raise(const Call& call, const Answer& answer) {
    const auto doing = fmt::format("etcd at {}: {}", answer.endpoint, call.doing);
    auto fault = fault_of(doing, *answer.refusal, call.writes);
    if (call.writes && is_out_of_space(*answer.refusal)) throw OutOfSpace(std::move(fault.message));
    if (call.writes && is_missing_lease(*answer.refusal)) throw MissingLease(std::move(fault.message));
    raise_fault(fault);
  }

  // A token that is no good any more is renewed and the call made again, once: it was not looked at. So is
  // one that is missing because the server wanted none when it was asked for.
  Answer exchange(const Call& call) {
    const auto used = token();
    auto answer = send(call, used);
    if (address_.user.empty() || !answer.refusal || !is_outdated_authentication(*answer.refusal))
      return answer;
    forget(used);
    return send(call, token());
  }

  Answer send(const Call& call, const std::string& token) {
    const auto order = endpoints_.order(BootClock::now());
    if (call.hedging && order.size() > 1) return send_hedged(call, token, order);
    std::string why;
    for (const auto at : order) {
      const auto& endpoint = address_.endpoints[at];
      const auto reply = http_.post({endpoint, call.path, call.body, token, address_.timeout});
      (void)is_well(at, reply);
      if (reply.ending == Ending::answered) return read_or_raise(call, endpoint, reply);
      append(why, reply.why);
      if (reply.ending != Ending::not_sent) raise_unanswered(call, why);
    }
    throw Unavailable("etcd: no endpoint can be reached: " + why);
  }

  Answer send_hedged(const Call& call, const std::string& token, const std::vector<std::size_t>& order) {
    std::vector<Http::Request> requests;
    for (const auto at : order)
      requests.push_back({address_.endpoints[at], call.path, call.body, token, address_.timeout});
    std::string why;
    bool may_be_done = false;
    std::optional<std::size_t> first;  // that answered well
    std::optional<std::size_t> ill;    // that answered otherwise
    Http::Reply answer;
    const auto on_reply = [&](std::size_t i, Http::Reply reply) {
      if (is_well(order[i], reply)) first = i;
      may_be_done = may_be_done || reply.ending == Ending::unanswered;
      const bool is_ill = !first && reply.ending == Ending::answered;
      if (is_ill) ill = i;
      append(why, is_ill ? requests[i].endpoint + " has no leader" : reply.why);
      if (first || is_ill) answer = std::move(reply);
      return first.has_value();
    };
    const auto on_late = [&](std::size_t i) { endpoints_.failed(order[i], BootClock::now()); };
    http_.post(requests, {call.hedging->delay, on_reply, on_late});
    if (first) return read_or_raise(call, requests[*first].endpoint, answer);
    if (may_be_done) raise_unanswered(call, why);
    if (ill) return read_or_raise(call, requests[*ill].endpoint, answer);
    throw Unavailable("etcd: no endpoint can be reached: " + why);
  }

  // One that answers without a leader, or out of time, is as useless as one that does not answer.
  bool is_well(std::size_t at, const Http::Reply& reply) {
    const bool is_well = reply.ending == Ending::answered && reply.status < server_error;
    if (is_well)
      endpoints_.answered(at, BootClock::now());
    else
      endpoints_.failed(at, BootClock::now());
    return is_well;
  }

  static void append(std::string& why, const std::string& more) { why += (why.empty() ? "" : "; ") + more; }

  static Answer read_or_raise(const Call& call, const std::string& endpoint, const Http::Reply& reply) {
    try {
      return read(endpoint, reply);
    } catch (const std::exception&) {
      raise_unanswered(call, endpoint + " said what is no answer");
    }
  }

  static Answer read(const std::string& endpoint, const Http::Reply& reply) {
    Answer answer{endpoint, {}, {}};
    if (reply.status != ok) {
      answer.refusal = refusal_in(reply.status, reply.body);
      return answer;
    }
    answer.object = parse_object(reply.body);
    // A stream is answered with 200 before it fails.
    if (answer.object.contains("error")) answer.refusal = refusal_in(reply.status, reply.body);
    return answer;
  }

  // The token of the authentication, asked for where there is none; empty where none is wanted.
  std::string token() {
    if (address_.user.empty()) return {};
    const std::scoped_lock lock{mutex_};
    if (has_token_) return token_;
    const Call call{"/v3/auth/authenticate", "authenticating",
                    authenticate_request(address_.user, address_.password), false,
                    Hedging{address_.connect_timeout}};
    const auto answer = send(call, {});
    if (answer.refusal && !is_authentication_off(*answer.refusal)) raise(call, answer);
    token_ = answer.refusal ? std::string{} : decoded(call, answer, token_answer);
    has_token_ = true;
    return token_;
  }

  void forget(const std::string& used) {
    const std::scoped_lock lock{mutex_};
    if (token_ == used) has_token_ = false;
  }

  const Address address_;
  Http http_;
  Endpoints endpoints_;
  std::mutex mutex_;  // guards the two below, and is held while they are asked for
  bool has_token_ = false;
  std::string token_;
};

bool Client::Wire::follow(const Deletion& deletion) {
  const auto body = watch_request(deletion.key, deletion.revision);
  const auto used = token();
  const auto at = endpoints_.order(BootClock::now()).front();
  auto news = WatchNews::nothing;
  const auto on_line = [&](std::string_view line) {
    try {
      news = watch_answer(parse_object(line));
    } catch (const std::exception&) {
      news = WatchNews::over;
    }
    return news == WatchNews::nothing;
  };
  const auto reply = http_.follow({address_.endpoints[at], "/v3/watch", body, used, address_.timeout},
                                  {on_line, deletion.quiet_max, deletion.stop, deletion.meanwhile});
  if (reply.ending != Http::Reply::Ending::answered) endpoints_.failed(at, BootClock::now());
  // Whatever ended it, a token that is no good any more would end the next one too.
  if (news == WatchNews::over) forget(used);
  return news == WatchNews::deleted;
}

Compare value_is(std::string key, std::string value) {
  return {Compare::Target::value, Compare::Is::equal, std::move(key), std::move(value)};
}

Compare is_absent(std::string key) {
  return created_at(std::move(key), 0);
}

Compare created_at(std::string key, std::int64_t revision) {
  return {Compare::Target::create_revision, Compare::Is::equal, std::move(key), {}, revision};
}

Op put(std::string key, std::string value, std::int64_t lease) {
  Op op;
  op.kind = Op::Kind::put;
  op.key = std::move(key);
  op.value = std::move(value);
  op.lease = lease;
  return op;
}

Op get(std::string key) {
  Op op;
  op.key = std::move(key);
  return op;
}

Op get_all(std::string prefix) {
  Op op;
  op.range_end = end_of_prefix(prefix);
  op.key = std::move(prefix);
  return op;
}

Op remove(std::string key) {
  Op op = get(std::move(key));
  op.kind = Op::Kind::remove;
  return op;
}

Op remove_all(std::string prefix) {
  Op op = get_all(std::move(prefix));
  op.kind = Op::Kind::remove;
  return op;
}

std::string end_of_prefix(std::string prefix) {
  while (!prefix.empty()) {
    const auto last = static_cast<unsigned char>(prefix.back());
    if (last < 255) {
      prefix.back() = static_cast<char>(last + 1);
      return prefix;
    }
    prefix.pop_back();
  }
  return std::string(1, '\0');  // to etcd: no end
}

Client::Client(std::string_view url) : Client{address_beside_source(Url::parse(url))} {}
Client::Client(const Address& address) : wire_{std::make_unique<Wire>(address)} {}
Client::~Client() = default;

const Address& Client::address() const noexcept {
  return wire_->address();
}

TxnAnswer Client::txn(const Txn& txn, std::optional<Hedging> hedging) {
  require_fit(txn);
  const bool writes = !only_reads(txn.then) || !only_reads(txn.otherwise);
  return wire_->ask({"/v3/kv/txn", "a transaction", txn_request(txn), writes, hedging}, txn_answer);
}

OpAnswer Client::range(const Op& range) {
  return wire_->ask({"/v3/kv/range", "reading", range_request(range), false}, range_answer);
}

LeaseAnswer Client::grant(std::int64_t id, std::chrono::milliseconds ttl) {
  const auto ttl_s = std::chrono::ceil<std::chrono::seconds>(ttl).count();
  const auto answer = wire_->ask_unless(
      is_existing_lease, {"/v3/lease/grant", "granting a lease", grant_request(id, ttl_s), true},
      lease_answer);
  return answer ? *answer : keep_alive(id);
}

LeaseAnswer Client::keep_alive(std::int64_t id, std::optional<Hedging> hedging) {
  const auto answer = wire_->ask_unless(
      is_missing_lease, {"/v3/lease/keepalive", "renewing a lease", lease_request(id), true, hedging},
      [](const boost::json::object& object) { return lease_answer(result_in(object)); });
  return answer.value_or(LeaseAnswer{id, {}, 0});
}

bool Client::revoke(std::int64_t id) {
  const auto answer =
      wire_->ask_unless(is_missing_lease, {"/v3/lease/revoke", "ending a lease", lease_request(id), true},
                        [](const boost::json::object& object) { return object.contains("header"); });
  return answer.has_value();
}

LeaseAnswer Client::time_to_live(std::int64_t id) {
  const auto answer = wire_->ask_unless(
      is_missing_lease, {"/v3/lease/timetolive", "asking for a lease", lease_request(id), false},
      lease_answer);
  return answer.value_or(LeaseAnswer{id, {}, 0});
}

bool Client::wait_for_delete(const Deletion& deletion) {
  return wire_->follow(deletion);
}

Client::Member Client::status(const std::string& endpoint) {
  return wire_->status(endpoint);
}

}  // namespace fenceguard::etcd
