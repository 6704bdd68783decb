# frozen_string_literal: true

require_relative "../support/failure"
require_relative "configuration"
require_relative "quantities"

module Thruway
  # The directives of a configuration file for the cache of responses.
  module CacheDirectives
    # Sets the size of the cache that all workers share; with 0 or nil there is none.
    def cache(size)
      @settings[:cache_bytes_max] = Quantities.bytes(size || 0)
    end

    # Sets the longest body that the cache stores.
    def cache_item_limit(size)
      @settings[:cache_item_bytes_max] = Quantities.bytes(size)
    end
  end
end
