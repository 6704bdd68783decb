# frozen_string_literal: true

require_relative "thruway/version"
# After a hot restart of `rails server` or `rackup`, this is the first file of the gem to be loaded.
if ENV["THRUWAY_INHERITANCE"].to_i == Process.pid
  require_relative "thruway/launch/early_signals"
end
require "thruway/thruway"
require_relative "thruway/names"

# From a name to its bytes with no stops.
module Thruway
end
