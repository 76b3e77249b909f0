#pragma once

// The token source etcd://: a lease, and a key under the lock's name, of which the one that was created first
// holds it; its token is its create revision and the namespace's offset. 'etcdctl lock PREFIX/lock/RESOURCE'
// takes the same lock. See docs/etcd.md.
//
//   etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]   and see adapters/etcd/address.hpp
//     ?lock_key=PREFIX%sSUFFIX   the lock's name, %s being the resource, to exclude and be excluded by what
//                                others lock under that name

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::etcd {

// Connects with the first call. Throws InvalidInput for a URL that it does not understand.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::etcd
