# frozen_string_literal: true

require_relative "thruway/version"
require "thruway/thruway"
require_relative "thruway/names"

# From a name to its bytes with no stops.
module Thruway
end
