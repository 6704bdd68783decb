# frozen_string_literal: true

require "securerandom"

# A client of WebSockets that shows every frame.
class WebSocketing
  PATIENCE_SECONDS = 60

  TEXT = 1
  BINARY = 2
  CLOSE = 8
  PING = 9
  PONG = 10

  # The example of RFC 6455, 1.3.
  KEY = "dGhlIHNhbXBsZSBub25jZQ=="
  ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

  attr_reader :status, :fields, :io

  # Asks for an upgrade on a connection; `fields` are whole lines.
  def initialize(io, path = "/", fields = "")
    @io = io
    @io.write("GET #{path} HTTP/1.1\r\nHost: test.example\r\nUpgrade: websocket\r\n" \
              "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: #{KEY}\r\n" \
              "Sec-WebSocket-Version: 13\r\n#{fields}\r\n")
    within { read_head }
  end

  def open? = status == 101

  # Sends a frame, masked.
  def send(payload, opcode = TEXT, first: 0x80)
    @io.write(self.class.frame(payload.b, first | opcode))
    self
  end

  def self.frame(bytes, first)
    mask = SecureRandom.bytes(4).bytes
    length = if bytes.size < 126
               [0x80 | bytes.size].pack("C")
             else
               bytes.size < 65_536 ? [0xfe, bytes.size].pack("Cn") : [0xff, bytes.size].pack("CQ>")
             end
    masked = bytes.each_byte.with_index.map { |byte, at| byte ^ mask[at % 4] }
    [first].pack("C") + length + mask.pack("C4") + masked.pack("C*")
  end

  # Returns the next frame: its first byte and its payload; nil at the end.
  def frame
    within do
      first, short = @io.read(2)&.unpack("CC")
      next unless first

      form, size = { 126 => ["n", 2], 127 => ["Q>", 8] }[short]
      [first, @io.read(form ? @io.read(size).unpack1(form) : short)]
    end
  rescue Errno::ECONNRESET
    nil
  end

  # Returns the payload of the next message that is not a ping.
  def message
    first, payload = frame until first && first & 15 != PING
    first & 15 == TEXT ? payload.force_encoding("UTF-8") : payload
  end

  # Returns the code of the next frame, a close frame.
  def close_code
    first, payload = frame
    raise "#{first.inspect} is no close frame" unless first == 0x88

    payload.unpack1("n")
  end

  def close(code = 1000, reason = "")
    send([code].pack("n") + reason, CLOSE)
  end

  private

  def within(&block) = Timeout.timeout(PATIENCE_SECONDS, &block)

  def read_head
    @status = @io.gets("\r\n")[9, 3].to_i
    @fields = {}
    while (line = @io.gets("\r\n").chomp) && !line.empty?
      name, value = line.split(": ", 2)
      @fields[name.downcase] = value
    end
  end
end
