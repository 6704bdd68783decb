# frozen_string_literal: true

module Thruway
  # The `rack.input` of requests without a body. The module has no state, so all requests share it.
  # Beside the methods that Rack requires, it has those of an empty file that applications and
  # Puma's own input know.
  module EmptyInput
    module_function

    def read(length = nil, buffer = nil)
      raise ArgumentError, "negative length #{length} given" if length&.negative?

      buffer&.clear
      length&.positive? ? nil : buffer || String.new
    end

    def gets(*)
      nil
    end

    def getc
      nil
    end

    def getbyte
      nil
    end

    def each(*)
      self
    end

    alias each_line each
    module_function :each_line

    def rewind
      0
    end

    def seek(*)
      0
    end

    def pos
      0
    end

    def eof?
      true
    end

    def close
      nil
    end

    # Other requests use the same object.
    def closed?
      false
    end

    def size
      0
    end

    def string
      ""
    end

    def external_encoding
      Encoding::BINARY
    end

    def set_encoding(*)
      self
    end

    def binmode
      self
    end

    def binmode?
      true
    end

    def sync
      true
    end

    def flush
      self
    end
  end
end
