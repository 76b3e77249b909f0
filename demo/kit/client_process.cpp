#include "demo/kit/client_process.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iostream>
#include <map>
#include <thread>

#include "adapters/schemes.hpp"
#include "demo/clients/clients.hpp"
#include "guard/error.hpp"
#include "guard/support/clock.hpp"
#include "guard/support/percent.hpp"
#include "guard/token_source.hpp"
#include "server/http/client.hpp"

namespace fenceguard::demo {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr int attempts_max = 20;
constexpr milliseconds pause_between{100};
constexpr milliseconds loss_limit{8'000};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(BootClock::now().time_since_epoch()).count();
}

http::Request request_of(std::string method, std::string target, const std::optional<Claim>& claim = {}) {
  http::Request request{.method = std::move(method), .target = std::move(target), .fields = {}, .body = {}};
  if (!claim) return request;
  request.fields.add("Fencing-Token", to_string(claim->token));
  request.fields.add("Fencing-Holder", claim->holder.id());
  return request;
}

// The leases of a guard's control side.
class ControlLock : public Lock {
 public:
  ControlLock(const std::string& control, const std::string& resource)
      : client_{control}, resource_{resource}, path_{percent_encode_path(resource)} {}

  Reply take(const Reply& request) override {
    auto post = request_of("POST", "/v1/leases");
    post.fields.add("Content-Type", "application/json");
    post.body = json::serialize(json::object{
        {"resource", resource_}, {"ttl_ms", request.at("ttl_ms")}, {"wait_ms", request.at("wait_ms")}});
    const auto response = client_.send(post);
    Reply reply{{"status", response.status}};
    if (const auto after = response.fields.single("Retry-After")) reply["retry_after"] = std::string{*after};
    if (response.status == 409 || response.status == 503) {
      reply["refusal"] = response.body;
      return reply;
    }
    if (response.status != 201 && response.status != 200)
      throw Unavailable(fmt::format("the lock cannot be taken: {} {}", response.status, response.body));
    const auto grant = json::parse(response.body).as_object();
    reply.insert({{"token", grant.at("token")}, {"holder", grant.at("holder")}});
    // What the guard requires now.
    const auto fence = client_.send(request_of("GET", "/v1/fences/" + path_));
    if (fence.status == 200) reply["highest"] = json::parse(fence.body).at("token");
    return reply;
  }

  bool release(const std::optional<Claim>& claim, Reply& reply) override {
    const auto status = client_.send(request_of("DELETE", "/v1/leases/" + path_, claim)).status;
    reply["status"] = status;
    return status == 204;
  }

 private:
  http::Client client_;
  std::string resource_;
  std::string path_;
};

// A token source; no lease is kept alive but those that live by a connection.
class SourceLock : public Lock {
 public:
  explicit SourceLock(const std::string& resource) : resource_{resource} {}

  Reply take(const Reply& request) override {
    const auto url = text_at(request, "source");
    auto& source = sources_[url];
    if (!source) source = open_source_at(Url::parse(url));
    source_ = source.get();
    const auto answer =
        source_->try_acquire(resource_, Holder::random(), milliseconds{number_at(request, "ttl_ms")});
    const auto* grant = std::get_if<Grant>(&answer);
    if (!grant) return {};
    lost_ = source_->lost(grant->claim);
    return {{"token", to_string(grant->claim.token)}, {"holder", grant->claim.holder.id()}};
  }

  bool release(const std::optional<Claim>& claim, Reply& /*reply*/) override {
    return claim && source_ && source_->release(*claim) == Release::released;
  }

  bool is_lost() override { return lost_.stop_requested(); }

 private:
  Resource resource_;
  std::map<std::string, std::unique_ptr<TokenSource>> sources_;  // by URL
  TokenSource* source_ = nullptr;
  std::stop_token lost_;
};

// Over HTTP: through a guard, or without a claim straight at a storage.
class HttpAccount : public AccountAccess {
 public:
  HttpAccount(const std::string& server, const std::string& resource, milliseconds patience)
      : client_{server, patience}, target_{'/' + percent_encode_path(resource)} {}

  Reply read(const std::optional<Claim>& claim) override {
    auto [reply, body] = send(request_of("GET", target_, claim));
    if (reply.at("status") == 200) {
      reply["verdict"] = "admitted";
      reply["balance"] = balance_in(body);
    }
    return reply;
  }

  Reply write(const std::optional<Claim>& claim, std::int64_t balance) override {
    auto request = request_of("PUT", target_, claim);
    request.body = std::to_string(balance);
    request.fields.add("Content-Type", "text/plain");
    return send(request).first;
  }

 private:
  std::pair<Reply, std::string> send(const http::Request& request) {
    auto response = client_.send(request);
    Reply reply{{"status", response.status}};
    const auto verdict = response.fields.single("Fencing-Verdict");
    if (!verdict && response.status >= 300)
      throw Unavailable(fmt::format("the guard answered {}: {}", response.status, response.body));
    reply["verdict"] = std::string{verdict.value_or("admitted")};
    if (const auto highest = response.fields.single("Fencing-Highest"))
      reply["highest"] = parse_decimal(*highest).value_or(0);
    return {std::move(reply), std::move(response.body)};
  }

  http::Client client_;
  std::string target_;
};

Reply reply_of(const Ruling& ruling) {
  return {{"verdict", to_string(ruling.verdict)}, {"highest", ruling.highest}};
}

// Straight at the storage, which asks for no token, or judges the claim in the transaction that writes.
class StorageAccount : public AccountAccess {
 public:
  StorageAccount(const Url& storage, const std::string& place, std::string path) : path_{std::move(path)} {
    if (place.empty())
      raw_ = clients_of(storage).open_raw(storage);
    else
      fenced_ = clients_of(storage).open_fenced(storage, place);
  }

  Reply read(const std::optional<Claim>& claim) override {
    if (!claim) return {{"verdict", "admitted"}, {"balance", balance_in(client().read(path_))}};
    const auto read = fenced_->read(*claim, path_);
    auto reply = reply_of(read.ruling);
    if (read.ruling.verdict == Verdict::admitted) reply["balance"] = balance_in(read.body);
    return reply;
  }

  Reply write(const std::optional<Claim>& claim, std::int64_t balance) override {
    if (claim) return reply_of(fenced_->write(*claim, path_, std::to_string(balance)));
    client().write(path_, std::to_string(balance));
    return {{"verdict", "admitted"}};
  }

 private:
  RawClient& client() { return fenced_ ? *fenced_ : *raw_; }

  // One of the two.
  std::unique_ptr<RawClient> raw_;
  std::unique_ptr<FencedClient> fenced_;
  std::string path_;
};

// What a client does that believes in its lock: it tries until there is an answer.
template <class Attempt>
Reply repeat(const Attempt& attempt, bool repeats) {
  for (int i = 1;; ++i) {
    try {
      return attempt();
    } catch (const OutcomeUnknown&) {
      if (!repeats) return {{"verdict", ""}};  // gives up without an answer
      if (i == attempts_max) throw;
    } catch (const Error&) {
      if (!repeats || i == attempts_max) throw;
    }
    std::this_thread::sleep_for(pause_between);
  }
}

class Actor {
 public:
  Actor(Tools tools, const Reply& options)
      : tools_{std::move(tools)},
        resource_{text_at(options, "resource")},
        repeats_{options.at("repeats").as_bool()} {}

  Reply obey(const Reply& request) {
    const auto word = text_at(request, "do");
    const auto claim = claim_in(request);
    if (word == "take") return tools_.lock->take(request);
    if (word == "read") return repeat([&] { return tools_.account->read(claim); }, repeats_);
    if (word == "write")
      return repeat([&] { return tools_.account->write(claim, number_at(request, "balance")); }, repeats_);
    if (word == "loss") return {{"lost", waits_for_loss()}};
    Reply reply;
    reply["released"] = tools_.lock->release(claim, reply);
    return reply;
  }

 private:
  [[nodiscard]] std::optional<Claim> claim_in(const Reply& request) const {
    if (!request.contains("token")) return std::nullopt;
    return Claim{resource_, Token{number_at(request, "token")}, Holder{text_at(request, "holder")}, {}};
  }

  bool waits_for_loss() {
    const auto deadline = BootClock::now() + loss_limit;
    while (!tools_.lock->is_lost() && BootClock::now() < deadline)
      std::this_thread::sleep_for(milliseconds{10});
    return tools_.lock->is_lost();
  }

  Tools tools_;
  Resource resource_;
  bool repeats_;
};

Tools default_tools(const Reply& options) {
  const auto resource = text_at(options, "resource");
  Tools tools;
  if (const auto control = text_at(options, "control"); !control.empty())
    tools.lock = std::make_unique<ControlLock>(control, resource);
  else
    tools.lock = std::make_unique<SourceLock>(resource);
  if (const auto guard = text_at(options, "guard"); !guard.empty())
    tools.account =
        std::make_unique<HttpAccount>(guard, resource, milliseconds{number_at(options, "patience_ms")});
  else
    tools.account = std::make_unique<StorageAccount>(Url::parse(text_at(options, "storage")),
                                                     text_at(options, "place"), resource);
  return tools;
}

Reply reply_to(Actor& actor, const std::string& line) {
  const auto began = now_us();
  auto reply = actor.obey(json::parse(line).as_object());
  reply.insert({{"began_us", began}, {"ended_us", now_us()}});
  return reply;
}

}  // namespace

std::int64_t number_at(const Reply& object, const char* name) {
  const auto* value = object.if_contains(name);
  return value ? value->to_number<std::int64_t>() : 0;
}

std::string text_at(const Reply& object, const char* name) {
  const auto* value = object.if_contains(name);
  return value ? std::string{value->as_string().c_str()} : std::string{};
}

std::int64_t balance_in(const std::optional<std::string>& body) {
  const auto balance = parse_decimal(body.value_or(""));
  if (!balance) throw Unavailable("the account holds something that is not a balance");
  return *balance;
}

void run_client() {
  run_client(default_tools);
}

void run_client(const std::function<Tools(const Reply& options)>& make) {
  std::string line;
  if (!std::getline(std::cin, line))
    throw InvalidInput("a client of the demonstration is started by it alone");
  try {
    const auto options = json::parse(line).as_object();
    Actor actor{make(options), options};
    while (std::getline(std::cin, line)) std::cout << json::serialize(reply_to(actor, line)) << std::endl;
  } catch (const std::exception& error) {
    std::cout << json::serialize(Reply{{"error", error.what()}}) << std::endl;
  }
}

}  // namespace fenceguard::demo
