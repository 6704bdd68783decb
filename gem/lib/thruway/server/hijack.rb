# frozen_string_literal: true

module Thruway
  # A request's `rack.hijack`. The engine makes one for each request and sets its variables.
  # Whatever thread calls it, it takes the connection of that request, and never that of a later
  # one.
  class Hijack
    def call
      @server.__send__(:hijack, @request)
    end

    # Sends fields ahead of the response of that request (103).
    def hint(headers)
      @server.__send__(:hint, @request, headers)
    end

    # As a block, like the Proc that other servers have here.
    def to_proc
      method(:call).to_proc
    end
  end
end
