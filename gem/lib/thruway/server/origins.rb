# frozen_string_literal: true

module Thruway
  # The pages that may open a WebSocket: those of the same host, unless others are named. A client
  # that is no browser names none.
  class Origins
    USUAL_PORTS = { "http" => ":80", "https" => ":443" }.freeze

    # An origin as browsers write it (RFC 6454, 6.2).
    FORM = %r{\A(?:null|[a-z][a-z0-9+.-]*://[^/*\sA-Z]*)\z}

    # Whether that can be equal to what a browser sends.
    def self.known?(allowed)
      return allowed.is_a?(Regexp) unless allowed.is_a?(String)

      port = USUAL_PORTS[allowed[/\A[a-z]+/]]
      allowed.match?(FORM) && !(port && allowed.end_with?(port))
    end

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
      port = USUAL_PORTS[scheme]
      return false unless port && place

      place.delete_suffix(port) == host.downcase.delete_suffix(port)
    end
  end
end
