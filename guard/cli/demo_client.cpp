#include "guard/cli/demo_client.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>

#include "adapters/schemes.hpp"
#include "guard/cli/demo_process.hpp"
#include "guard/error.hpp"
#include "guard/http/client.hpp"
#include "guard/percent.hpp"

namespace fenceguard::demo {
namespace {

// Longer than any lease of the demonstration, and shorter than its patience.
constexpr std::chrono::milliseconds lock_wait{8'000};

std::chrono::microseconds now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(BootClock::now().time_since_epoch());
}

void tell(const ClientMessage& message) {
  const auto line = encode(message) + '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void add_claim(http::Request& request, const Claim& claim) {
  request.fields.add("Fencing-Token", to_string(claim.token));
  request.fields.add("Fencing-Holder", claim.holder.id());
}

[[noreturn]] void fail(const std::string& what, const http::Response& response) {
  throw Unavailable(fmt::format("{}: the guard answered {}: {}", what, response.status, response.body));
}

std::int64_t balance_from(const std::string& text) {
  const auto balance = parse_decimal(text);
  if (!balance) throw Unavailable("the account holds something that is not a balance");
  return *balance;
}

// How a write ended, with what an event says of it.
struct WriteAnswer {
  Step step = Step::written;
  std::optional<Token> highest{};
  unsigned status = 0;
};

// The two ways to the data.
class Account {
 public:
  virtual ~Account() = default;
  virtual std::int64_t read(const Claim& claim) = 0;
  virtual WriteAnswer write(const Claim& claim, std::int64_t balance) = 0;
};

class GuardedAccount : public Account {
 public:
  GuardedAccount(const std::string& server, const std::string& resource)
      : client_{server}, target_{'/' + percent_encode_path(resource)} {}

  std::int64_t read(const Claim& claim) override {
    http::Request request{.method = "GET", .target = target_, .fields = {}, .body = {}};
    add_claim(request, claim);
    const auto response = client_.send(request);
    if (response.status != 200) fail("the balance cannot be read", response);
    return balance_from(response.body);
  }

  WriteAnswer write(const Claim& claim, std::int64_t balance) override {
    http::Request request{.method = "PUT", .target = target_, .fields = {}, .body = std::to_string(balance)};
    add_claim(request, claim);
    request.fields.add("Content-Type", "text/plain");
    const auto response = client_.send(request);
    WriteAnswer answer{.status = response.status};
    if (const auto highest = response.fields.single("Fencing-Highest"))
      answer.highest = Token::parse(*highest);
    const auto verdict = response.fields.single("Fencing-Verdict");
    if (response.status == 412 && verdict == "stale")
      answer.step = Step::refused;
    else if (response.status >= 300 || verdict != "admitted")
      fail("the balance cannot be written", response);
    return answer;
  }

 private:
  http::Client client_;
  std::string target_;
};

// Straight into the storage, which asks for no token.
class OpenAccount : public Account {
 public:
  OpenAccount(const std::string& storage, std::string path)
      : door_{schemes().open_unguarded(Url::parse(storage))}, path_{std::move(path)} {}

  std::int64_t read(const Claim& /*claim*/) override { return balance_from(door_->read(path_).value_or("")); }

  WriteAnswer write(const Claim& /*claim*/, std::int64_t balance) override {
    door_->write(path_, std::to_string(balance));
    return {};
  }

 private:
  std::unique_ptr<UnguardedDoor> door_;
  std::string path_;
};

// Straight into a storage that judges the claim itself, in the transaction that writes. What it reads is read
// after the advance, which came with the lock.
class DirectAccount : public Account {
 public:
  DirectAccount(const ClientTask& task)
      : door_{schemes().open_direct(Url::parse(task.door), task.place)},
        path_{task.resource},
        is_guarded_{task.guarded} {}

  std::int64_t read(const Claim& /*claim*/) override { return balance_from(door_->read(path_).value_or("")); }

  WriteAnswer write(const Claim& claim, std::int64_t balance) override {
    if (!is_guarded_) {
      door_->write(path_, std::to_string(balance));
      return {};
    }
    const auto ruling = door_->write(claim, path_, std::to_string(balance));
    if (ruling.verdict == Verdict::admitted) return {};
    if (ruling.verdict != Verdict::stale) {
      throw Unavailable(
          fmt::format("the balance cannot be written: the storage answered {}", to_string(ruling.verdict)));
    }
    WriteAnswer answer{.step = Step::refused};
    if (ruling.highest > 0) answer.highest = Token{ruling.highest};
    return answer;
  }

 private:
  std::unique_ptr<DirectDoor> door_;
  std::string path_;
  bool is_guarded_;
};

// The leases of the guard's control side.
class Lock {
 public:
  explicit Lock(const ClientTask& task) : client_{task.control}, resource_{task.resource}, ttl_{task.ttl} {}

  // The grant, or nothing if it stayed held by others. status: of the answer.
  std::optional<Claim> acquire(std::chrono::milliseconds wait, unsigned& status) {
    const boost::json::object body{
        {"resource", resource_.name()}, {"ttl_ms", ttl_.count()}, {"wait_ms", wait.count()}};
    http::Request request{
        .method = "POST", .target = "/v1/leases", .fields = {}, .body = boost::json::serialize(body)};
    request.fields.add("Content-Type", "application/json");
    const auto response = client_.send(request);
    status = response.status;
    if (status == 409) return std::nullopt;
    if (status != 201 && status != 200) fail("the lock cannot be taken", response);
    try {
      const auto grant = boost::json::parse(response.body).as_object();
      const auto text = [&](const char* name) { return std::string{grant.at(name).as_string().c_str()}; };
      if (const auto token = Token::parse(text("token")))
        return Claim{resource_, *token, Holder{text("holder")}, {}};
    } catch (const std::exception&) {
    }
    fail("the lock cannot be taken", response);
  }

  unsigned release(const Claim& claim) {
    http::Request request{.method = "DELETE",
                          .target = "/v1/leases/" + percent_encode_path(resource_.name()),
                          .fields = {},
                          .body = {}};
    add_claim(request, claim);
    return client_.send(request).status;
  }

 private:
  http::Client client_;
  Resource resource_;
  std::chrono::milliseconds ttl_;
};

class Worker {
 public:
  Worker(const ClientTask& task, Account& account) : task_{task}, account_{account}, lock_{task} {}

  void work() {
    while (!attempt()) {
    }
    tell(Finished{});
  }

 private:
  // False: the write was refused, and nothing of the attempt is left.
  bool attempt() {
    const auto claim = take_lock();
    auto reading = begin(Step::balance_read);
    const auto balance = account_.read(claim);
    reading.balance = balance;
    finish(reading, claim);

    tell(AtWork{});
    std::string go_on;
    if (!std::getline(std::cin, go_on)) throw Unavailable("the demonstration is gone");

    auto writing = begin(Step::written);
    const auto answer = account_.write(claim, balance + task_.add);
    writing.step = answer.step;
    writing.status = answer.status;
    writing.highest = answer.highest;
    writing.balance = balance + task_.add;
    writing.based_on = balance;
    finish(writing, claim);
    if (answer.step == Step::refused) {
      auto rollback = begin(Step::rolled_back);
      rollback.balance = balance + task_.add;
      finish(rollback, claim);
      return false;
    }
    give_lock_back(claim);
    return true;
  }

  Claim take_lock() {
    auto asking = begin(Step::lock_granted);
    auto claim = lock_.acquire(std::chrono::milliseconds{0}, asking.status);
    if (!claim) {
      asking.step = Step::lock_held;
      finish(asking, std::nullopt);
      asking = begin(Step::lock_granted);
      claim = lock_.acquire(lock_wait, asking.status);
    }
    if (!claim) throw Unavailable("the lock stayed held");
    finish(asking, claim);
    return *claim;
  }

  void give_lock_back(const Claim& claim) {
    auto releasing = begin(Step::lock_released);
    releasing.status = lock_.release(claim);
    // 412: the lease ran out meanwhile, which the client learns only now.
    if (releasing.status == 204) finish(releasing, claim);
  }

  Event begin(Step step) const {
    Event event;
    event.step = step;
    event.who = task_.who;
    event.began = now();
    return event;
  }

  static void finish(Event& event, const std::optional<Claim>& claim) {
    event.ended = event.step == Step::rolled_back ? event.began : now();
    if (claim) event.token = claim->token;
    tell(event);
  }

  const ClientTask& task_;
  Account& account_;
  Lock lock_;
};

void run_client() {
  std::string line;
  if (!std::getline(std::cin, line))
    throw InvalidInput("a client of the demonstration is started by it alone");
  const auto task = decode_task(line);
  std::unique_ptr<Account> account;
  if (!task.place.empty())
    account = std::make_unique<DirectAccount>(task);
  else if (task.door.empty())
    account = std::make_unique<GuardedAccount>(task.data, task.resource);
  else
    account = std::make_unique<OpenAccount>(task.door, task.resource);
  Worker{task, *account}.work();
}

}  // namespace
}  // namespace fenceguard::demo

namespace fenceguard {

int demo_client_main(int /*argc*/, char** /*argv*/) {
  try {
    demo::run_client();
    return 0;
  } catch (const std::exception& error) {
    demo::tell(demo::Failed{error.what()});
    return 3;
  }
}

}  // namespace fenceguard
