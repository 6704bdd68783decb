# frozen_string_literal: true

module Thruway
  # What keeps a server from starting: one line that names the thing, and the cure where there is
  # one.
  class Failure < StandardError
    STATUS = 2

    attr_reader :hint

    # One text of parts that may have any bytes, and each its encoding.
    def self.text(*parts) = parts.map { |part| part.to_s.b }.join

    # `message` is lower-case, without a full stop.
    def initialize(message, hint: nil)
      super(message)
      @hint = hint
    end

    # Says it on stderr, and gives the exit status.
    def report
      text = Failure.text("thruway: ", message, "\n")
      text << Failure.text("\nhint: ", hint, "\n") if hint
      $stderr.write(text)
      STATUS
    end
  end
end
