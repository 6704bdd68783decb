# frozen_string_literal: true

require_relative "../support/failure"
require_relative "configuration"

module Thruway
  # The directives of a configuration file for the cache of responses.
  module CacheDirectives
    UNITS = { "" => 1, "K" => 1 << 10, "M" => 1 << 20, "G" => 1 << 30 }.freeze

    # Converts a size in bytes: a number, or a text such as "64M".
    def self.bytes(size)
      return size if size.is_a?(Integer) && size >= 0

      number, unit = size.to_s.match(/\A(\d+)\s*([KMG]?)(?:i?B)?\z/i)&.captures
      raise ArgumentError, "#{size.inspect} is not a size, such as 64M or 1048576" unless number

      number.to_i * UNITS.fetch(unit.upcase)
    end

    # Sets the size of the cache that all workers share; with 0 or nil there is none.
    def cache(size)
      @settings[:cache_bytes_max] = CacheDirectives.bytes(size || 0)
    end

    # Sets the longest body that the cache stores.
    def cache_item_limit(size)
      @settings[:cache_item_bytes_max] = CacheDirectives.bytes(size)
    end
  end
end
