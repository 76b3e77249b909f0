#pragma once

// What the quorum's rules say to a node and hear from it. A Request is one script at one node, an Answer what
// it said; wire.hpp knows how they read in Redis.
//
// An epoch is the time between two restorations of nodes that forgot their state: a random word, the same at
// all nodes that count together. Numbers that were answered in different epochs are never put together,
// because between them a node may have forgotten what it answered.
//
// Values.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fenceguard::redis::quorum {

struct Request {
  enum class What {
    ask,      // round 1: the lock for holder and nonce, if it is free, with the next number
    confirm,  // round 2: the hold with the number answered becomes one with number, the counter at least that
    extend,   // the holder's hold with number gets a new nonce and at least ttl
    withdraw,   // frees the hold of holder and nonce, unless its number is number
    renew,      // the holder's hold with number gets ttl
    release,    // frees the holder's hold with number
    show,       // the holder of the lock
    prepare,    // the state of a node; one that has none becomes a candidate under nonce
    freeze,     // from epoch to next_epoch: what was begun in the old one cannot be confirmed any more
    lift,       // the counter to at least number
    bootstrap,  // the candidate of nonce votes from now on, in epoch, from number on
    draw,       // the next number, granted to no holder
  };
  What what = What::show;
  std::string resource{};
  std::string holder{};
  std::string nonce{};
  std::string epoch{};  // the node must be in it
  std::string next_epoch{};
  std::int64_t number = 0;
  std::int64_t answered = 0;
  std::int64_t ttl_ms = 0;
};

struct Answer {
  enum class Kind {
    granted,    // to ask, draw: number
    mine,       // to ask: held by the same holder already
    held,       // to ask: by holder; to show: number, holder, left_ms
    confirmed,  // done
    refused,    // not done, because things are not as the request says
    marked,     // to prepare: epoch, number is the counter, clock_us
    unmarked,   // the node has no state and does not vote; to prepare: clock_us
    silent,     // no answer, or none that can be used
  };
  Kind kind = Kind::silent;
  Request::What to = Request::What::show;  // what it answers
  std::string epoch{};
  std::string holder{};
  std::int64_t number = 0;
  std::int64_t left_ms = 0;
  std::int64_t clock_us = 0;
};

// To one of the nodes, which are counted from 0. What several nodes are asked is one request.
struct Send {
  std::size_t node = 0;
  std::shared_ptr<const Request> request;
};
using Sends = std::vector<Send>;

[[nodiscard]] inline Send send_to(std::size_t node, Request request) {
  return {node, std::make_shared<const Request>(std::move(request))};
}
[[nodiscard]] inline Sends send_to_all(std::size_t nodes, Request request) {
  const auto shared = std::make_shared<const Request>(std::move(request));
  Sends sends;
  sends.reserve(nodes);
  for (std::size_t node = 0; node < nodes; ++node) sends.push_back({node, shared});
  return sends;
}

}  // namespace fenceguard::redis::quorum
