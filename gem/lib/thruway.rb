# frozen_string_literal: true

require_relative "thruway/version"
# Below `rails server` or `rackup` it is the first file of ours.
require_relative "thruway/early_signals" if ENV.key?("THRUWAY_INHERITANCE")
require "thruway/thruway"
require_relative "thruway/names"

# From a name to its bytes with no stops.
module Thruway
end
