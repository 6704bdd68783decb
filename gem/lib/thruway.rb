# frozen_string_literal: true

require_relative "thruway/version"
require "thruway/thruway"

# From a name to its bytes with no stops.
module Thruway
end
