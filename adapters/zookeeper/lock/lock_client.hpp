#pragma once

// LockClient: the steps of the lock recipe, each of them one call of a session or a few, on nodes below ROOT:
//
//   ROOT/offset                     what is added to every czxid: decimal, 0 until a raise
//   ROOT/stamp                      set whenever an entry is made: its mzxid is the entry's czxid
//   ROOT/locks/RESOURCE/ENTRY       see layout.hpp; data: 'HOLDER OFFSET'
//   ROOT/lock_paths/NAME            data: another node below which there are locks of this namespace
//
// The token of an entry is its node's czxid plus the offset in its data. A node is created in one multi
// with a check of the offset's version, so that what was drawn holds the present offset: a raise excludes
// draws. An entry of another library says no offset; it counts with the present one.
//
// The answer to a create within a multi does not tell the czxid, which would cost a second round trip: so the
// same multi sets a node of ours, of which the answer does.
//
// Faults as of Session; nothing is repeated here but what was refused. Thread-safe.

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "adapters/zookeeper/session.hpp"
#include "adapters/zookeeper/wire/layout.hpp"
#include "guard/claim.hpp"
#include "guard/source/lease_lister.hpp"

namespace fenceguard::zookeeper {

class LockClient {
 public:
  // pattern: as of LockPath.
  LockClient(const std::string& root, const std::string& pattern, Layout layout);

  [[nodiscard]] std::string lock_of(const Resource& resource) const { return path_.of(resource); }

  // Where an entry stands.
  struct Place {
    bool is_there = false;              // its node exists
    std::optional<Token> token;         // if so
    std::optional<std::string> before;  // the path of the one before it; none: it holds the lock
  };

  // An entry that was made, and what the same round trip told of its place.
  struct Entry {
    std::string path;
    std::int64_t offset = 0;
    std::int64_t czxid = 0;
    std::optional<std::vector<std::string>> children{};  // of the lock; nothing: that answer did not come
  };
  // Makes an entry in lock for this GUID.
  [[nodiscard]] Entry enter(Session& session, const std::string& lock, const std::string& guid,
                            const Holder& holder);
  // REQUIRES: it has the children.
  [[nodiscard]] static Place place_of(const Entry& entry);

  // The same for an entry whose path is known: one round trip.
  // watch, if there is one, is told when its node has gone.
  [[nodiscard]] Place look(Session& session, const std::string& entry, Session::Watch watch = {});

  // Whether the node was there, as of the moment of the call or later. A hint: it may go at once.
  [[nodiscard]] static bool is_there(Session& session, const std::string& entry);

  // The entries of this GUID, whatever became of the answers to our calls before: their paths.
  [[nodiscard]] std::vector<std::string> find(Session& session, const std::string& lock,
                                              const std::string& guid);

  // Whether the entry's node exists, as the quorum knows it and not one server that may lag behind.
  [[nodiscard]] bool confirm(Session& session, const std::string& entry);

  // Removes the node. False: it was not there.
  static bool remove(Session& session, const std::string& entry);

  // The entry that holds the lock, whatever one server may have missed.
  struct Head {
    std::string entry;  // its path
    Token token;
    Holder holder;  // the empty one where another library's does not tell
  };
  [[nodiscard]] std::optional<Head> head(Session& session, const std::string& lock);

  // Looks at every node that there is above a lock whose resource starts so: more than list_nodes_max are
  // Unavailable.
  [[nodiscard]] LeasePage list(Session& session, const FenceListing& listing);
  static constexpr std::size_t list_nodes_max = 20'000;

  void raise(Session& session, Token mark);
  [[nodiscard]] Token draw(Session& session);
  [[nodiscard]] Token lowest_live(Session& session);

 private:
  struct Offset {
    std::int64_t value = 0;
    std::int32_t version = 0;
    std::int64_t zxid = 0;  // of the present or the past
  };

  [[nodiscard]] Offset offset(Session& session);
  [[nodiscard]] Offset read_offset(Session& session);
  void keep(const Session& session, const Offset& offset);
  [[nodiscard]] MultiAnswer make_entry(Session& session, const std::string& lock, const std::vector<Op>& ops,
                                       Entry& entry);
  void register_place(Session& session);
  void make_lock(Session& session, const std::string& lock);
  // Ends once the ensemble has decided on everything that was begun before, by this session and by others,
  // and its own server knows it.
  void catch_up(Session& session);
  [[nodiscard]] Token token_of(Session& session, const Answer& node);
  [[nodiscard]] std::optional<Head> first_of(Session& session, const std::string& lock,
                                             const std::vector<std::string>& children);
  void lower_to_live(Session& session, const std::string& top, Token& lowest);

  const std::string root_;
  const std::string offset_path_;
  const std::string stamp_path_;
  const LockPath path_;
  const Layout layout_;
  std::mutex mutex_;                 // guards what follows
  std::int64_t offset_session_ = 0;  // by which the offset was read: a restored ensemble repeats versions
  std::optional<Offset> offset_;
  std::int64_t registered_session_ = 0;  // by which our place was registered
};

}  // namespace fenceguard::zookeeper
