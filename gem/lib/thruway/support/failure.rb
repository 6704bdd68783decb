# frozen_string_literal: true

module Thruway
  # An error that keeps a server from starting: a line that names the cause, and a hint if there is
  # a remedy.
  class Failure < StandardError
    STATUS = 2

    attr_reader :hint

    # Joins texts whose encodings may differ or be invalid.
    def self.text(*parts) = parts.map { |part| part.to_s.b }.join

    # `message` is lower-case, without a full stop.
    def initialize(message, hint: nil)
      super(message)
      @hint = hint
    end

    # Writes the message to stderr. Returns the exit status.
    def report
      text = Failure.text("thruway: ", message, "\n")
      text << Failure.text("\nhint: ", hint, "\n") if hint
      $stderr.write(text)
      STATUS
    end
  end
end
