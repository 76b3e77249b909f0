#include "adapters/redis/quorum/broadcast.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "adapters/redis/wire/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis::quorum {

Broadcast::Broadcast(Nodes& nodes, std::chrono::milliseconds limit)
    : nodes_{nodes}, limit_{limit}, links_(nodes.size()) {}

Broadcast::~Broadcast() {
  for (std::size_t node = 0; node < links_.size(); ++node) {
    auto& link = links_[node];
    if (link.connection && link.awaited.empty()) nodes_[node]->give_back(std::move(link.connection));
  }
}

void Broadcast::send(const Sends& sends) {
  for (const auto& one : sends) send(one);
  until_ = BootClock::now() + limit_;
}

void Broadcast::send(const Send& send) {
  const auto node = send.node;
  auto& link = links_[node];
  if (!link.was_taken) {
    link.was_taken = true;
    link.connection = nodes_[node]->take();
    if (!link.connection) link.trouble = nodes_[node]->reason();
  }
  link.awaited.push_back({send.request});
  if (!link.connection) return give_up(node, {});
  if (encoded_of_ != send.request) {
    encoded_of_ = send.request;
    encoded_ = encoded(nodes_[node]->prefix(), *send.request, true);
  }
  try {
    link.connection->queue_encoded(encoded_);
    link.connection->send();
  } catch (const Error& error) {
    link.is_unknown = true;
    give_up(node, error.what());
  }
}

// Everything that the node has not answered is silent.
void Broadcast::give_up(std::size_t node, const std::string& reason) {
  auto& link = links_[node];
  if (link.connection) {
    link.connection.reset();
    link.trouble = reason;
    nodes_[node]->put_out(reason);
  }
  for (const auto& awaited : link.awaited) {
    Answer silence;
    silence.to = awaited.request->what;
    events_.push_back({node, silence});
  }
  link.awaited.clear();
}

std::optional<Broadcast::Event> Broadcast::next() {
  while (events_.empty()) {
    if (!wait()) return std::nullopt;
  }
  auto event = std::move(events_.front());
  events_.pop_front();
  return event;
}

// Waits for an answer. False if none is awaited.
bool Broadcast::wait() {
  descriptors_.clear();
  waited_for_.clear();
  for (std::size_t node = 0; node < links_.size(); ++node) {
    if (links_[node].awaited.empty()) continue;
    descriptors_.push_back({links_[node].connection->socket(), POLLIN, 0});
    waited_for_.push_back(node);
  }
  if (descriptors_.empty()) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - BootClock::now());
  // At the end of the time what has arrived is still read.
  const auto left_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  const int count = poll(descriptors_.data(), descriptors_.size(), left_ms);
  if (count < 0) return true;  // a signal
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    const auto node = waited_for_[i];
    if (descriptors_[i].revents != 0) {
      receive(node);
    } else if (count == 0) {
      links_[node].is_unknown = true;
      give_up(node, fmt::format("Redis at {}: it did not answer in time", nodes_[node]->name()));
    }
  }
  return true;
}

void Broadcast::receive(std::size_t node) {
  auto& link = links_[node];
  try {
    const auto reply = link.connection->receive();
    const auto awaited = std::move(link.awaited.front());
    link.awaited.erase(link.awaited.begin());
    const auto what = awaited.request->what;
    if (awaited.by_hash && is_unknown_script(reply)) {
      link.awaited.push_back({awaited.request, false});
      link.connection->queue_encoded(encoded(nodes_[node]->prefix(), *awaited.request, false));
      return link.connection->send();
    }
    auto answer = answer_of(what, reply);
    if (!answer) {
      answer.emplace().to = what;
      const auto who = fmt::format("Redis at {}", nodes_[node]->name());
      const auto fault = reply.is_error() ? fault_of(who, reply)
                                          : Fault{FaultKind::unknown, who + ": its answer is none of ours"};
      link.trouble = fault.message;
      link.is_unknown = link.is_unknown || fault.kind == FaultKind::unknown;
    }
    events_.push_back({node, std::move(*answer)});
  } catch (const Error& error) {
    link.is_unknown = true;
    give_up(node, error.what());
  }
}

std::string Broadcast::troubles() const {
  std::string text;
  for (const auto& link : links_) {
    if (!link.trouble.empty()) text += "; " + link.trouble;
  }
  return text;
}

}  // namespace fenceguard::redis::quorum
