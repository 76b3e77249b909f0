#pragma once

// The fences of an etcd namespace, a page at a time. What is read here shows and proves nothing: a fence may
// change while it is being read.
//
// Thread safety: that of the client. Functions throw Unavailable.

#include <cstdint>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fences/fence_keys.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::etcd {

// See FenceStore::list.
[[nodiscard]] FencePage list(Client& client, const FenceKeys& keys, const FenceListing& listing);

// The highest token of all fences and of the floor; 0 if there is none. What is damaged is passed over.
enum class Reading {
  in_log,  // for what a claim may be refused by; needs the right to write
  to_be_shown,
};
[[nodiscard]] std::int64_t highest_of_all(Client& client, const FenceKeys& keys, Reading reading);

// How many fences have a record.
[[nodiscard]] std::int64_t count(Client& client, const FenceKeys& keys);

}  // namespace fenceguard::etcd
