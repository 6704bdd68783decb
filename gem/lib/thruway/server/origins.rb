# frozen_string_literal: true

module Thruway
  # The origins whose pages may open a WebSocket: the server's own host, unless the configuration
  # lists others. Clients other than browsers send no origin, and are allowed.
  class Origins
    USUAL_PORTS = { "http" => ":80", "https" => ":443" }.freeze

    # An origin in the form that browsers send (RFC 6454, section 6.2).
    FORM = %r{\A(?:null|[a-z][a-z0-9+.-]*://[^/*\sA-Z]*)\z}

    # Whether `allowed` can match an origin of a browser.
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

    # The scheme is not compared, since a proxy may terminate TLS.
    def same_host?(origin, host)
      scheme, place = origin.downcase.split("://", 2)
      port = USUAL_PORTS[scheme]
      return false unless port && place

      place.delete_suffix(port) == host.downcase.delete_suffix(port)
    end
  end
end
