# frozen_string_literal: true

require "zlib"

module Thruway
  # Compresses responses with gzip if the client accepts gzip and the response gets shorter.
  #
  # Without `all`, responses for one user are not compressed: if a page holds a secret beside text
  # that an attacker chooses, its compressed length reveals when the two are equal (BREACH).
  class Compression
    # The shortest body to compress. Shorter ones fit into a packet anyway.
    BYTES_MIN = 1024

    LEVEL = 5

    # Zlib's largest window; 16 asks for gzip's header and trailer.
    GZIP = 16 + Zlib::MAX_WBITS

    # The types to compress. Other common formats are compressed already.
    TYPES = %r{\A(?:text/(?!event-stream)|application/(?:[\w.-]+\+)?(?:json|xml)|
               application/(?:javascript|wasm)|image/(?:svg\+xml|bmp)|font/(?:ttf|otf))}xi

    # Fields of bodies that are encoded already, such as by `Rack::Chunked`, or partial.
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
      return false if size(fields, body)&.<(BYTES_MIN)

      control = value(fields, "cache-control").downcase
      !control.include?("no-transform") && (@all || !personal?(env, fields, control))
    end

    # Whether a response is for one user alone.
    def personal?(env, fields, control)
      return false if control.match?(/\bpublic\b/)

      env.key?("HTTP_COOKIE") || env.key?("HTTP_AUTHORIZATION") || fields.key?("set-cookie") ||
        control.match?(/\b(?:private|no-store)\b/)
    end

    # The size of the body in bytes; nil if unknown.
    def size(fields, body)
      return body.sum(&:bytesize) if body.instance_of?(Array)

      Integer(value(fields, "content-length"), exception: false)
    end

    def value(fields, name) = fields[name]&.last.to_s

    # Whether the client accepts gzip, by name or by `*`, and does not prefer plain bytes.
    def accepted?(accept)
      weights = accept.to_s.downcase.delete(" \t").split(",").to_h { |text| weigh(text) }
      gzip = weights["gzip"] || weights["x-gzip"] || weights["*"] || 0
      gzip.positive? && gzip >= weights.fetch("identity", 0)
    end

    # A coding and its weight (RFC 9110, section 12.4.2). A malformed weight counts as 0.
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
      # Ranges of the compressed body would not match those of the file.
      headers.delete(fields["accept-ranges"].first) if fields.key?("accept-ranges")
      headers["content-encoding"] = "gzip"
      weaken(headers, *fields["etag"]) if fields.key?("etag")
      return [status, headers, Pieces.new(body)] unless body.instance_of?(Array)

      packed = Zlib.gzip(body.join, level: LEVEL)
      [status, headers.merge("content-length" => packed.bytesize.to_s), [packed]]
    end

    # Makes the entity tag a weak one, since the compressed bytes differ while the meaning is the
    # same.
    def weaken(headers, name, tag)
      headers[name] = "W/#{tag}" if tag.to_s.start_with?('"')
    end

    # A body that is compressed piece by piece. The client can read each piece as soon as it
    # arrives.
    class Pieces
      def initialize(body)
        @body = body
      end

      def each
        deflate = Zlib::Deflate.new(LEVEL, GZIP)
        # Empty pieces are skipped: zlib fails if two flushes have no data in between.
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
