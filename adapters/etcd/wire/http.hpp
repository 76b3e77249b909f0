#pragma once

// Http: POST requests over libcurl, on connections that are kept and reused. It knows for each request
// whether it was begun to be sent, and never sends one twice: libcurl repeats by itself a request whose kept
// connection breaks before the first byte of an answer, which here fails instead.
//
// Thread-safe: each request under way has a handle, and so connections, of its own.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/wire/answers.hpp"

namespace fenceguard::etcd {

class Http {
 public:
  explicit Http(const Address& address);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  struct Request {
    const std::string& endpoint;  // of Address::endpoints
    std::string_view path;        // '/v3/kv/txn'
    const std::string& body;
    const std::string& token;            // of the authentication; empty: none
    std::chrono::milliseconds time_max;  // for the answer to post(), the connection included
  };

  struct Reply {
    enum class Ending {
      answered,    // completely
      not_sent,    // certainly: there was no connection
      unanswered,  // sent in part at least, and no whole answer came
    };
    Ending ending = Ending::not_sent;
    int status = 0;    // of HTTP, where it was answered
    std::string body;  // likewise
    std::string why;   // where it was not, as a sentence
  };
  [[nodiscard]] Reply post(const Request& request);

  // For what may be done any number of times (a hedged request): the first is sent at once, and each further
  // one as well when all before it have ended, or delay after the one before. What is under way once on_reply
  // says true is given up.
  struct Hedged {
    std::chrono::milliseconds delay;
    std::function<bool(std::size_t request, Reply reply)> on_reply;  // true: that was it
    std::function<void(std::size_t request)> on_late;  // the next one was not kept waiting for it
  };
  void post(std::span<const Request> requests, const Hedged& hedged);

  // Reads an answer that goes on, line by line, until on_line or meanwhile says false, time_max has passed,
  // the connection ended, or stop was requested.
  struct Following {
    std::function<bool(std::string_view line)> on_line;
    std::chrono::milliseconds time_max;
    const std::stop_token& stop;
    const Meanwhile& meanwhile;
  };
  // answered: not ended by the connection. Otherwise as post(); an answer that does not even begin within the
  // time for answers is unanswered.
  [[nodiscard]] Reply follow(const Request& request, const Following& following);

 private:
  class Handle;
  class Hedge;
  [[nodiscard]] std::unique_ptr<Handle> take();
  void put_back(std::unique_ptr<Handle> handle);

  const Address address_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;
  std::vector<std::unique_ptr<Hedge>> idle_hedges_;
};

}  // namespace fenceguard::etcd
