#pragma once

// Requests: a filter for Proxy that counts etcd's requests by their path, and does something at the next one
// of a path, or at its answer, once: it runs a step of the test, and then passes the piece on, cuts the
// connection, or cuts all of them and every later one.
//
// Thread-safe. Steps run on the proxy's thread and must not use a client of that proxy.

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

class Requests {
 public:
  enum class Then { pass, cut, close };
  using Step = std::function<Then()>;

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t connection, Proxy::Direction direction, std::string_view piece) {
      return pass(connection, direction, piece);
    };
  }
  // Which one Then::close closes.
  void set_proxy(Proxy& proxy) { proxy_ = &proxy; }

  void at_next(std::string path, Step step) { add({std::move(path), false, {}, std::move(step)}); }
  void at_next_answer(std::string path, Step step) { add({std::move(path), true, {}, std::move(step)}); }
  // Of a transaction that removes a key.
  void at_next_removal(Step step) { add({"/v3/kv/txn", false, removal, std::move(step)}); }
  void at_answer_of_next_removal(Step step) { add({"/v3/kv/txn", true, removal, std::move(step)}); }
  void forget() {
    const std::scoped_lock guard{mutex_};
    armed_.clear();
  }

  [[nodiscard]] int count(const std::string& path) {
    const std::scoped_lock guard{mutex_};
    return counts_[path];
  }

 private:
  // As its first operation; transactions that only read have one in the branch that is never taken.
  static constexpr std::string_view removal = R"("success":[{"request_delete_range")";

  struct Armed {
    std::string path;
    bool is_at_answer;
    std::string_view body;  // a part of it
    Step step;
  };

  void add(Armed armed) {
    const std::scoped_lock guard{mutex_};
    armed_.push_back(std::move(armed));
  }

  std::size_t pass(std::size_t connection, Proxy::Direction direction, std::string_view piece) {
    const bool is_answer = direction == Proxy::Direction::to_client;
    Step step;
    {
      const std::scoped_lock guard{mutex_};
      auto& request = requests_[connection];
      if (piece.starts_with("POST ") && !is_answer) {
        request = piece;
        ++counts_[path_of(request)];
      } else if (!is_answer) {
        request += piece;
      }
      for (auto one = armed_.begin(); one != armed_.end(); ++one) {
        if (one->is_at_answer != is_answer || one->path != path_of(request) ||
            request.find(one->body) == request.npos)
          continue;
        step = std::move(one->step);
        armed_.erase(one);
        break;
      }
    }
    const auto then = step ? step() : Then::pass;
    if (then == Then::close) proxy_->set(Proxy::Way::closed);
    return then == Then::pass ? piece.size() : 0;
  }

  static std::string path_of(const std::string& request) {
    const auto begin = request.find(' ') + 1;
    return request.substr(begin, request.find(' ', begin) - begin);
  }

  Proxy* proxy_ = nullptr;
  std::mutex mutex_;                             // guards what follows
  std::map<std::size_t, std::string> requests_;  // the last of each connection
  std::map<std::string, int> counts_;
  std::vector<Armed> armed_;
};

}  // namespace fenceguard::test
