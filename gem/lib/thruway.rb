# frozen_string_literal: true

require_relative "thruway/version"
# Below `rails server` or `rackup` it is the first file of ours in the next server of a restart.
if ENV["THRUWAY_INHERITANCE"].to_i == Process.pid
  require_relative "thruway/launch/early_signals"
end
require "thruway/thruway"
require_relative "thruway/names"

# From a name to its bytes with no stops.
module Thruway
end
