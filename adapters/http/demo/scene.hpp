#pragma once

// Where the story of a delayed packet takes place: the storage, the network in front of it and the guard,
// each a process of this program, and clients who note what they were answered.
//
// Not thread-safe.

#include <memory>
#include <optional>
#include <string>

#include "guard/demonstration.hpp"
#include "guard/http/client.hpp"

namespace fenceguard::proxy::demos {

inline constexpr const char* account = "/accounts/42";
inline constexpr std::chrono::milliseconds settle{2'000};

class Network {
 public:
  // In front of storage, HOST:PORT. REQUIRES: the stage outlives it.
  Network(Stage& stage, const std::string& storage);

  // http://HOST:PORT
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  // Holds the next request. Returns when it will.
  void hold_next();
  // Returns when a request is held. Throws Unavailable if there is none.
  void await_held();
  void release();

 private:
  void await(const std::string& word);

  std::unique_ptr<StageProcess> process_;
  std::string url_;
};

// All that is there before the clients come; the account holds 100.
class Scene {
 public:
  explicit Scene(Stage& stage);

  [[nodiscard]] Stage& stage() noexcept { return stage_; }
  [[nodiscard]] Network& network() noexcept { return *network_; }
  // http://HOST:PORT each.
  [[nodiscard]] const std::string& storage() const noexcept { return storage_url_; }
  [[nodiscard]] const std::string& data() const noexcept { return data_; }
  [[nodiscard]] const std::string& control() const noexcept { return control_; }
  // In the storage, from the point of view of nobody.
  [[nodiscard]] std::string balance() const;

 private:
  void start_storage();
  void start_guard();

  Stage& stage_;
  std::unique_ptr<StageProcess> storage_;
  std::string storage_url_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<StageProcess> guard_;
  std::string data_;
  std::string control_;
};

// What a client holds.
struct Held {
  Token token;
  std::string holder;
};

// What a client was answered.
struct Answered {
  unsigned status = 0;  // 0: nothing, within the client's patience
  std::string verdict;  // of the guard; empty where it had no part
  std::string body;
};

class Actor {
 public:
  // lane: its own. door: where it reads and writes, which stands in door_lane.
  Actor(Scene& scene, std::string lane, const std::string& door, std::string door_lane);

  // Asks for the lock once, and waits for it for so long. Nothing if it is not granted; status() says why.
  [[nodiscard]] std::optional<Held> take(std::chrono::milliseconds ttl, std::chrono::milliseconds wait);
  [[nodiscard]] unsigned status() const noexcept { return status_; }
  // The same; only a grant is told.
  [[nodiscard]] std::optional<Held> ask_again(std::chrono::milliseconds ttl, std::chrono::milliseconds wait);

  // Under a claim where there is one. Throws Unavailable if it was not let in or there is no number.
  [[nodiscard]] std::int64_t read(const std::optional<Held>& claim);
  // what: how it is told.
  Answered write(const std::optional<Held>& claim, std::int64_t balance, const std::string& what);
  void note(std::string what, TaleEvent::Tone tone);

 private:
  [[nodiscard]] Answered send(const std::optional<Held>& claim, const std::string& method,
                              const std::string& body);
  [[nodiscard]] http::Response ask(std::chrono::milliseconds ttl, std::chrono::milliseconds wait);
  void note_grant(const http::Response& response, std::chrono::milliseconds ttl,
                  const std::optional<Held>& held);

  Scene& scene_;
  std::string lane_;
  std::string door_lane_;
  http::Client door_;
  http::Client control_;
  unsigned status_ = 0;
};

}  // namespace fenceguard::proxy::demos
