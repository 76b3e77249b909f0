#include "tests/proof/checker/random_history.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/proof/checker/model.hpp"
#include "tests/proof/random.hpp"

namespace fenceguard::proof {
namespace {

class Generator {
 public:
  Generator(std::uint64_t seed, const HistoryShape& shape) : random_{seed}, shape_{shape} {
    history_.resources.push_back({"accounts/42", {}, {}, shape.has_log});
    clients_.resize(static_cast<std::size_t>(shape.clients));
    for (auto& client : clients_) client.process = ++processes_;
  }

  History run() {
    auto& operations = history_.resources[0].operations;
    while (static_cast<int>(operations.size()) < shape_.operations || is_any_busy()) {
      now_ += 1 + random_(50);
      if (!late_.empty() && random_.percent(5)) land_late();
      step(clients_[static_cast<std::size_t>(random_(shape_.clients))]);
    }
    put_in_order(history_);
    return std::move(history_);
  }

 private:
  struct Client {
    std::int64_t process = 0;
    int operation = -1;  // under way
    bool is_applied = false;
    std::int64_t token = 0, sequence = 0;
    TextId holder = 0;
  };

  [[nodiscard]] bool is_any_busy() const {
    return std::ranges::any_of(clients_, [](const Client& client) { return client.operation >= 0; });
  }

  void step(Client& client) {
    auto& operations = history_.resources[0].operations;
    if (client.operation < 0) {
      if (static_cast<int>(operations.size()) < shape_.operations) call(client);
      return;
    }
    Operation& operation = operations[static_cast<std::size_t>(client.operation)];
    const bool is_unseen = operation.kind == Kind::write && random_.percent(shape_.unknown_percent * 2);
    if (is_unseen && !client.is_applied) {
      late_.push_back(client.operation);
      if (random_.percent(50)) {
        operation.returned = now_;
      } else {
        client.process = ++processes_;
      }
      client.operation = -1;
    } else if (!client.is_applied) {
      apply(operation);
      client.is_applied = true;
    } else {
      operation.returned = now_;
      client.operation = -1;
    }
  }

  void call(Client& client) {
    if (client.token == 0 || random_.percent(12)) {
      client.token = ++issued_;
      client.holder = history_.texts.id(fmt::format("h{}", client.token));
      client.sequence = 0;
    }
    Operation operation;
    const int what = random_(100);
    operation.kind = what < 10   ? Kind::advance
                     : what < 70 ? Kind::write
                     : what < 99 ? Kind::read
                                 : Kind::revoke;
    operation.process = client.process;
    operation.called = now_;
    const bool is_plain =
        operation.kind == Kind::revoke || (operation.kind == Kind::read && random_.percent(30));
    if (!is_plain) {
      operation.token = client.token;
      operation.holder = client.holder;
    }
    if (operation.kind == Kind::write) {
      operation.value = history_.texts.id(fmt::format("v{}", ++values_));
      if (random_.percent(30)) operation.sequence = ++client.sequence;
    }
    client.is_applied = false;
    client.operation = static_cast<int>(history_.resources[0].operations.size());
    history_.resources[0].operations.push_back(operation);
  }

  void apply(Operation& operation) {
    const ModelClaim claim{operation.token, operation.holder, operation.sequence};
    operation.answer = Answer::admitted;
    if (operation.kind == Kind::revoke) {
      if (state_.record_stands()) state_.is_closed = true;
    } else if (operation.token > 0) {
      operation.answer = static_cast<Answer>(judge(state_, claim));
      if (operation.answer == Answer::admitted) take(state_, claim);
    }
    const bool is_in = operation.answer == Answer::admitted;
    if (operation.kind == Kind::write && is_in) write(operation);
    if (operation.kind == Kind::read && is_in) operation.value = state_.value;
    if (operation.token > 0) operation.highest = state_.highest();
  }

  void write(const Operation& operation) {
    state_.value = operation.value;
    if (shape_.has_log) history_.resources[0].log.push_back({operation.token, operation.value});
  }

  void land_late() {
    const auto place = late_.begin() + random_(static_cast<int>(late_.size()));
    const Operation& operation = history_.resources[0].operations[static_cast<std::size_t>(*place)];
    const ModelClaim claim{operation.token, operation.holder, operation.sequence};
    if (judge(state_, claim) == Verdict::admitted) {
      take(state_, claim);
      write(operation);
    }
    late_.erase(place);
  }

  Random random_;
  const HistoryShape shape_;
  History history_;
  State state_;
  std::vector<Client> clients_;
  std::vector<int> late_;
  std::int64_t now_ = 0, issued_ = 0, processes_ = 0;
  int values_ = 0;
};

}  // namespace

History random_history(std::uint64_t seed, const HistoryShape& shape) {
  return Generator{seed, shape}.run();
}

}  // namespace fenceguard::proof
