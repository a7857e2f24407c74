// SPDX-License-Identifier: Apache-2.0
// Recipes: named sets of settings, used as defaults. A --config file and the command line override
// them. A new recipe is an entry of the table in recipe.cc.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct Config;

std::vector<std::string> RecipeNames();

// Sets `config.recipe` and what the recipe says; everything else stays as it is. Nothing for an
// empty name. Throws UsageError that lists the names there are.
void ApplyRecipe(Config& config, const std::string& name);

}  // namespace ddprun
