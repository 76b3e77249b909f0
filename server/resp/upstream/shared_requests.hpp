#pragma once

// SharedRequests: what one client sends on the connections that it shares with others, and how many replies
// it awaits there. All of it goes on one connection at a time, so that replies come in the order of the
// requests: what would go on another one (a large request, a write behind reads, whatever a lost connection
// leaves behind) is kept until nothing is awaited.
//
// Thread safety: the loop's thread only.

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/resp/upstream/upstreams.hpp"

namespace fenceguard::resp {

class SharedRequests {
 public:
  // number: of the client's connection.
  SharedRequests(std::shared_ptr<Upstreams> upstreams, std::int64_t number);

  // user gets the replies.
  void send(const LinkUserPtr& user, int slot, std::string_view bytes, std::size_t replies);
  void send(const LinkUserPtr& user, int slot, const ScriptCall& call, bool with_text);
  // Of one command that only reads: beside the writes of others, as long as the client sends nothing else.
  void send_read(const LinkUserPtr& user, int slot, std::string_view bytes);
  // What is kept, as far as it may go now.
  void send_kept(const LinkUserPtr& user);
  // Where the next request goes by an error 'MOVED ...' or 'ASK ...'; by none: where its slot is.
  void redirect(std::string_view error);

  // A reply has come, or will not. False: it is that of an ASKING of ours.
  [[nodiscard]] bool end_awaited() noexcept;
  // Of one that is the client's.
  void note_reply() {
    if (!to_read_.empty()) to_read_.pop_front();
  }
  // True, and it is sent elsewhere: a read for which there is no connection.
  [[nodiscard]] bool send_read_elsewhere(const LinkUserPtr& user, bool was_sent);
  // The connection is lost, and its users are told later.
  void note_settling() noexcept { is_settling_ = true; }

  // As whom and in which database, with which of the shared connections.
  [[nodiscard]] const Upstreams::Place& place() const noexcept { return place_; }
  void move_to(const Upstreams::Place& place);
  // The connection that it has alone, if any, is ended.
  void leave_own_lane();
  [[nodiscard]] int server_of(int slot) { return upstreams_->server_of(slot < 0 ? last_slot_ : slot); }

 private:
  struct Kept {
    std::size_t bytes;
    std::function<void(const LinkUserPtr& user)> send;
  };

  [[nodiscard]] bool has_own_lane() const noexcept { return place_.lane >= Upstreams::lanes; }
  // Whether so much goes on the connection now.
  [[nodiscard]] bool may_send(std::size_t bytes) noexcept;
  // True where it follows an ASKING.
  [[nodiscard]] bool begin_request(const LinkUserPtr& user, int slot, std::shared_ptr<Link>& link);

  const std::shared_ptr<Upstreams> upstreams_;
  const std::int64_t number_;
  Upstreams::Place place_;
  std::optional<redis::Endpoint> asked_;  // where an ASK sent what is sent next
  int last_slot_ = -1;
  std::size_t skipped_ = 0;             // replies to come that are of our own ASKING
  std::size_t awaited_ = 0;             // replies to come
  std::list<Kept> kept_;                // is sent later
  std::deque<std::string> to_read_;     // was sent for a connection for reads that is not there yet
  std::list<Kept> read_again_;          // because that was not made
  net::SteadyTime reads_apart_from_{};  // not before
  bool is_sending_kept_ = false;
  bool is_reading_ = false;   // what is awaited is on the connection for reads
  bool is_settling_ = false;  // what is awaited is lost, and not told yet
};

}  // namespace fenceguard::resp
