# frozen_string_literal: true

require "zlib"

module Thruway
  # Compresses responses with gzip, where the client takes that and the response gains by it.
  #
  # Unless it is for `all`, a response that belongs to a user is left alone. If a page has a secret
  # beside text that an attacker chooses, its compressed length tells when they are equal (BREACH).
  class Compression
    # Shorter bodies fit into a packet anyway.
    BYTES_MIN = 1024

    LEVEL = 5

    # Zlib's largest window, and gzip around it.
    GZIP = 16 + Zlib::MAX_WBITS

    # Everything else is compressed by itself, or is not known.
    TYPES = %r{\A(?:text/(?!event-stream)|application/(?:[\w.-]+\+)?(?:json|xml)|
               application/(?:javascript|wasm)|image/(?:svg\+xml|bmp)|font/(?:ttf|otf))}xi

    # Fields of bodies that are coded already, such as by `Rack::Chunked`, or that are a part.
    CODED = %w[content-encoding content-range transfer-encoding].freeze

    def initialize(app, all: false)
      @app = app
      @all = all
    end

    def call(env)
      status, headers, body = @app.call(env)
      fields = headers.to_h { |name, value| [name.downcase, [name, value]] }
      return [status, headers, body] unless compressible?(env, status, fields, body)

      headers = headers.dup
      vary(headers, fields)
      return [status, headers, body] unless accepted?(env["HTTP_ACCEPT_ENCODING"])

      compress(status, headers, fields, body)
    end

    private

    def compressible?(env, status, fields, body)
      return false unless status.to_i == 200 && env["REQUEST_METHOD"] != "HEAD"
      return false if env["rack.upgrade"] || !body.respond_to?(:each) || body.respond_to?(:to_path)
      return false unless value(fields, "content-type").match?(TYPES)
      return false if CODED.any? { |name| fields.key?(name) }
      return false if long(fields, body)&.<(BYTES_MIN)

      control = value(fields, "cache-control").downcase
      !control.include?("no-transform") && (@all || !personal?(env, fields, control))
    end

    # Whether a response is for one user alone.
    def personal?(env, fields, control)
      return false if control.match?(/\bpublic\b/)

      env.key?("HTTP_COOKIE") || env.key?("HTTP_AUTHORIZATION") || fields.key?("set-cookie") ||
        control.match?(/\b(?:private|no-store)\b/)
    end

    # Bytes of the body, if they are known.
    def long(fields, body)
      return body.sum(&:bytesize) if body.instance_of?(Array)

      Integer(value(fields, "content-length"), exception: false)
    end

    def value(fields, name) = fields[name]&.last.to_s

    # Whether gzip is welcome: named or by the star, and no less than the plain bytes.
    def accepted?(accept)
      weights = accept.to_s.downcase.delete(" \t").split(",").to_h { |text| weigh(text) }
      gzip = weights["gzip"] || weights["x-gzip"] || weights["*"] || 0
      gzip.positive? && gzip >= weights.fetch("identity", 0)
    end

    # A coding and its weight (RFC 9110, 12.4.2). A malformed weight is 0.
    def weigh(text)
      name, _, weight = text.partition(";")
      [name, weight.empty? ? 1 : weight[/\Aq=([01](?:\.\d{0,3})?)\z/, 1].to_f]
    end

    def vary(headers, fields)
      name, before = fields.fetch("vary") { ["vary", nil] }
      return if before.to_s.match?(/\*|accept-encoding/i)

      headers[name] = [before, "Accept-Encoding"].compact.join(", ")
    end

    def compress(status, headers, fields, body)
      headers.delete(fields["content-length"].first) if fields.key?("content-length")
      # A part of a file that a client has compressed is no part of what it would be sent.
      headers.delete(fields["accept-ranges"].first) if fields.key?("accept-ranges")
      headers["content-encoding"] = "gzip"
      weaken(headers, *fields["etag"]) if fields.key?("etag")
      return [status, headers, Pieces.new(body)] unless body.instance_of?(Array)

      packed = Zlib.gzip(body.join, level: LEVEL)
      [status, headers.merge("content-length" => packed.bytesize.to_s), [packed]]
    end

    # The bytes are others, what they mean is not.
    def weaken(headers, name, tag)
      headers[name] = "W/#{tag}" if tag.to_s.start_with?('"')
    end

    # A body that is compressed as it comes: each of its pieces can be read at once.
    class Pieces
      def initialize(body)
        @body = body
      end

      def each
        deflate = Zlib::Deflate.new(LEVEL, GZIP)
        # Zlib takes no second flush with nothing between.
        @body.each { |piece| yield deflate.deflate(piece, Zlib::SYNC_FLUSH) unless piece.empty? }
        yield deflate.finish
      ensure
        deflate&.close
      end

      def close = (@body.close if @body.respond_to?(:close))
    end

    private_constant :Pieces
  end
end
