# frozen_string_literal: true

module Thruway
  # The client of an upgraded connection: a WebSocket, or a stream of server-sent events. The
  # handler receives the client with each event. Any thread may write, and no write blocks.
  class Client
    BINARY = Encoding::BINARY

    # Sends a message to many clients, and returns the number of open ones. A frame for WebSockets
    # is encoded once for all.
    def self.broadcast(clients, data)
      data = data.to_s
      streams, sockets = clients.partition { |client| client.is_a?(EventClient) }
      is_text = data.encoding != BINARY
      data = utf8(data) if is_text
      open = sockets.group_by(&:engine).sum do |engine, group|
        engine.socket_broadcast(group.map(&:ticket).join, data, is_text)
      end
      open + streams.count { |client| client.write(data) }
    end

    # Converts a text to UTF-8, the encoding of text messages.
    def self.utf8(text)
      text = text.encode(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
      raise ArgumentError, "the text is not valid #{text.encoding}" unless text.valid_encoding?

      text
    end
    private_class_method :utf8

    # The environment of the upgraded request.
    attr_reader :env

    # The object whose methods receive the events.
    attr_accessor :handler

    # The close code of the WebSocket; nil while the connection is open.
    attr_reader :close_code

    # The engine, and the String that identifies this client in the engine.
    attr_reader :engine, :ticket

    def initialize(engine, ticket, env, handler)
      @engine = engine
      @ticket = ticket
      @env = env
      @handler = handler
    end

    # Sends a message: binary if the String is binary, and otherwise text. Returns false if the
    # client is gone.
    def write(data)
      data = data.to_s
      return @engine.socket_send(@ticket, data, false) if data.encoding == BINARY

      @engine.socket_send(@ticket, utf8(data), true)
    end

    alias << write

    # Closes the connection with a code, and a reason of at most 123 bytes.
    def close(code = 1000, reason = "")
      @engine.socket_close(@ticket, code, reason)
      nil
    end

    def open? = !@engine.socket_pending(@ticket).nil?

    # The number of bytes that the client has not received; -1 if the client is gone.
    def pending = @engine.socket_pending(@ticket) || -1

    def protocol = :websocket

    # :nodoc: Called by the server when the connection ends.
    def ended(code)
      @close_code = code
    end

    private

    def utf8(text) = Client.send(:utf8, text)
  end

  # The client of a stream of server-sent events.
  class EventClient < Client
    # Sends an event, whose data may have several lines.
    def write(data, event: nil, id: nil)
      lines = { "event" => event, "id" => id }.compact.map { |name, value| line(name, value) }
      texts = utf8(data.to_s).split(/\r\n|\r|\n/, -1)
      # Browsers ignore an event without a line of data.
      texts << "" if texts.empty?
      lines.concat(texts.map { |text| "data: #{text}\n" })
      @engine.socket_write(@ticket, "#{lines.join}\n")
    end

    alias << write

    def close(*)
      super()
    end

    def protocol = :sse

    private

    def line(name, value)
      raise ArgumentError, "the #{name} of an event must be one line" if
        value.to_s.match?(/[\r\n\0]/)

      "#{name}: #{value}\n"
    end
  end
end
