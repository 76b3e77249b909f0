#pragma once

// From the words of --fence-method to the methods: command:PATH and http:URL fit every storage, others are a
// storage's own.
//
// Thread-safe.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/fencing/fence_method.hpp"

namespace fenceguard {

// A method that is a storage's own. The function answers null for a word that it does not know, and throws
// InvalidInput for a parameter that is not fit.
using OwnMethods =
    std::function<std::unique_ptr<FenceMethod>(std::string_view word, std::string_view parameter)>;

// storage: for people, 'an http: storage'. Throws InvalidInput for a word that is no method, or does not fit
// the storage, and as the methods do.
[[nodiscard]] std::vector<std::unique_ptr<FenceMethod>> open_fence_methods(
    const std::vector<std::string>& words, std::string_view storage, const OwnMethods& own);

// 'upstream-reset', for a lane; else null.
[[nodiscard]] std::unique_ptr<FenceMethod> open_lane_method(std::string_view word,
                                                            std::string_view parameter);

}  // namespace fenceguard
