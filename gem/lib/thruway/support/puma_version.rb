# frozen_string_literal: true

module Thruway
  # The version of Puma whose configuration files, plugins and statistics this server understands.
  PUMA_VERSION = "8.0.2"
end
