# frozen_string_literal: true

module Thruway
  # The `rack.input` of requests without a body. The module has no state, so all requests share it.
  module EmptyInput
    module_function

    def read(length = nil, buffer = nil)
      buffer&.clear
      length&.positive? ? nil : buffer || String.new
    end

    def gets(*)
      nil
    end

    def each
      self
    end

    def rewind
      0
    end

    def close
      nil
    end

    def size
      0
    end

    def external_encoding
      Encoding::BINARY
    end

    def binmode
      self
    end
  end
end
