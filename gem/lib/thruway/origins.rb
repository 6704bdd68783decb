# frozen_string_literal: true

module Thruway
  # The pages that may open a WebSocket: those of the same host, unless others are named. A client
  # that is no browser names none.
  class Origins
    # `allowed` is nil, :any, or a list of Strings (`https://shop.example`) and Regexps.
    def initialize(allowed)
      @is_any = allowed == :any
      @allowed = @is_any ? [] : Array(allowed)
    end

    def allow?(env)
      origin = env["HTTP_ORIGIN"]
      return true if @is_any || origin.nil?
      return @allowed.any? { |allowed| allowed === origin } if @allowed.any?

      same_host?(origin, env["HTTP_HOST"].to_s)
    end

    private

    # A proxy may speak TLS with the client, so that the scheme does not count.
    def same_host?(origin, host)
      scheme, place = origin.downcase.split("://", 2)
      port = { "http" => ":80", "https" => ":443" }[scheme]
      return false unless port && place

      place.delete_suffix(port) == host.downcase.delete_suffix(port)
    end
  end
end
