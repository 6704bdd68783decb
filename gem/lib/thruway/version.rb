# frozen_string_literal: true

module Thruway
  VERSION = "0.1.0"
end
