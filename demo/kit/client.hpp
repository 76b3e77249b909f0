#pragma once

// Client: takes a lock and adds to an account, as a service would. It is a process of its own
// (client_process.hpp), so that it can be paused; each call here makes it do one thing, and becomes an event
// with what it was answered.
//
// Not thread-safe.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "demo/clients/account_cli.hpp"
#include "demo/kit/harness.hpp"
#include "guard/claim.hpp"

namespace fenceguard::demo {

inline constexpr const char* account = "accounts/42";

// Where a client finds its lock and its account, and the lanes that these have in the scenario.
struct ClientOptions {
  std::string storage{};    // URL of the storage, for a client that writes to it itself
  std::string place{};      // where in it, for a storage whose clients all do (demo/clients)
  std::string guard{};      // instead: http://HOST:PORT of a guard's data side, or of a plain HTTP storage
  bool guarded = true;      // carries its claim with every read and write
  bool is_advanced = true;  // false: its reads are plain, although its writes carry the claim
  std::string source{};     // URL of the token source
  std::string control{};    // instead: http://HOST:PORT of a guard's control side
  std::string resource = account;
  std::string lock_lane = "locks";
  std::string storage_lane = "storage";
  std::int64_t patience_ms = 5'000;  // for an answer over HTTP
  bool repeats = false;              // repeats reads and writes until there is an answer
  std::string program = "client";    // of 'demo-actor', with further words
  std::string word{};
  // Reads and writes by such a program, which is what is paused with it; empty: by itself.
  std::function<std::unique_ptr<AccountCli>(Harness&)> open_cli{};
};

// What a client was answered.
struct Answer {
  std::string verdict;          // 'admitted' also without a guard; empty: no answer within its patience
  std::int64_t balance = 0;     // read: what it is
  std::int64_t highest = 0;     // refused: by this token
  unsigned status = 0;          // over HTTP
  bool is_lost_update = false;  // write: replaced a balance that the client had not read

  [[nodiscard]] bool is_admitted() const { return verdict == "admitted"; }
};

class Client {
 public:
  // lane: its own, 'client A'. REQUIRES: the harness outlives it.
  Client(Harness& harness, std::string lane, const ClientOptions& options);

  // Takes the lock; a wait of 0 asks once. try_take() is false if it is held, and status() says why.
  [[nodiscard]] bool try_take(std::chrono::milliseconds ttl, std::chrono::milliseconds wait = {});
  // Throws Unavailable if it is held.
  void take(std::chrono::milliseconds ttl, std::chrono::milliseconds wait = {});
  // Asks until it is granted; only the grant is noted. Returns how often it was refused.
  int take_when_free(std::chrono::milliseconds ttl,
                     std::chrono::milliseconds pause = std::chrono::milliseconds{50},
                     std::chrono::milliseconds wait = {});
  // False if it was lost before.
  bool give_back();
  // Instead of a grant: a token from elsewhere, and the balance that was read under it.
  void set_claim(Token token, std::int64_t balance = 0);
  void use_source(const std::string& url) { options_.source = url; }

  [[nodiscard]] const Claim& claim() const { return claim_.value(); }
  [[nodiscard]] Token token() const { return claim().token; }
  [[nodiscard]] std::string token_text() const { return to_string(token()); }
  [[nodiscard]] const std::string& node() const noexcept { return node_; }  // of a lock without tokens
  [[nodiscard]] unsigned status() const noexcept { return status_; }        // of the last answer
  [[nodiscard]] const std::string& lane() const noexcept { return lane_; }

  // The balance. read() throws Unavailable unless it was admitted.
  Answer try_read();
  std::int64_t read();
  // Stores the balance that it read last, and so much more.
  Answer write(std::int64_t add);
  // The same in two steps, for a client that is paused between them: the request lies ready when it wakes.
  void begin_write(std::int64_t add);
  Answer finish_write();
  // read() and write(); true if both were admitted.
  bool add(std::int64_t amount);
  // Drops what it worked out.
  void roll_back();

  // SIGSTOP and SIGCONT. resume() returns for how long it was stopped.
  void pause(std::string what = "STOPPED by SIGSTOP");
  // Waits until it has been paused for so long.
  void stay_paused(std::chrono::milliseconds time);
  std::chrono::microseconds resume(const std::string& what = "and believes that it still holds the lock");
  [[nodiscard]] int pid() const noexcept { return process_->pid(); }
  // Its process has ended, by whatever.
  [[nodiscard]] bool is_over() { return process_->is_over(); }
  // True once it has learned that its lease, or its session, is lost; waits for that.
  [[nodiscard]] bool learns_of_loss();
  void note(std::string what, Tone tone = Tone::plain) { harness_.note(lane_, std::move(what), tone); }

 private:
  [[nodiscard]] std::string letter() const { return lane_.substr(lane_.size() - 1); }
  [[nodiscard]] bool has_lock() const { return claim_ || !node_.empty(); }
  void send(const boost::json::object& request);
  [[nodiscard]] boost::json::object receive();
  [[nodiscard]] boost::json::object call(boost::json::object request);
  [[nodiscard]] boost::json::object ask_for_lock(std::chrono::milliseconds ttl,
                                                 std::chrono::milliseconds wait);
  void note_lock(const boost::json::object& reply, std::chrono::milliseconds ttl);
  [[nodiscard]] boost::json::object request_of(const char* request, bool is_fenced) const;
  [[nodiscard]] Answer answer_of(const boost::json::object& reply);
  [[nodiscard]] Event event_of(const boost::json::object& reply, const char* step) const;
  [[nodiscard]] Event storage_event(const boost::json::object& reply, const Answer& answer, const char* step,
                                    bool is_fenced) const;
  void note_refusal(Event& event, const Answer& answer) const;
  void note_pause(std::string what, Event::Pause pause, std::chrono::microseconds at);

  Harness& harness_;
  std::string lane_;
  ClientOptions options_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<AccountCli> cli_;
  std::optional<Claim> claim_;
  std::string node_;
  unsigned status_ = 0;
  std::string refusal_;    // of the lock, in the words of its service
  std::int64_t base_ = 0;  // the balance that it read last
  std::int64_t adds_ = 0;
  std::chrono::microseconds paused_at_{};
};

}  // namespace fenceguard::demo
