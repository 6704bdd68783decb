# frozen_string_literal: true

module Thruway
  # The `rack.hijack` of a request. The engine allocates an instance for each request and sets its
  # instance variables. Any thread may call the object, and gets the connection of this request,
  # never the connection of a later request.
  class Hijack
    def call
      @server.__send__(:hijack, @request)
    end

    # Sends early hints (103) ahead of the response.
    def hint(headers)
      @server.__send__(:hint, @request, headers)
    end

    # Other servers use a Proc, which callers may pass as a block.
    def to_proc
      method(:call).to_proc
    end
  end
end
