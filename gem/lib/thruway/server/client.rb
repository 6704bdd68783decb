# frozen_string_literal: true

module Thruway
  # A client whose connection was upgraded: a WebSocket, or a stream of server-sent events. Its
  # handler is given it with each event. Any thread may write to it. No thread waits for it.
  class Client
    BINARY = Encoding::BINARY

    # Sends a message to many WebSockets: it is made once. How many of them are open. Streams of
    # events among them get an event each.
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

    # A text as messages have it.
    def self.utf8(text)
      text = text.encode(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
      raise ArgumentError, "a text is not #{text.encoding}" unless text.valid_encoding?

      text
    end
    private_class_method :utf8

    # The environment of the request that was upgraded, and what handles the events.
    attr_reader :env
    attr_accessor :handler

    # Why it is over, as WebSockets number that; nil before.
    attr_reader :close_code

    # What keeps it, and a String that stands for it there.
    attr_reader :engine, :ticket

    def initialize(engine, ticket, env, handler)
      @engine = engine
      @ticket = ticket
      @env = env
      @handler = handler
    end

    # Sends a message: bytes if the String is binary, otherwise text. False if the client is gone.
    def write(data)
      data = data.to_s
      return @engine.socket_send(@ticket, data, false) if data.encoding == BINARY

      @engine.socket_send(@ticket, utf8(data), true)
    end

    alias << write

    # Ends the connection. The client is told the code, and a reason of 123 bytes at most.
    def close(code = 1000, reason = "")
      @engine.socket_close(@ticket, code, reason)
      nil
    end

    def open? = !@engine.socket_pending(@ticket).nil?

    # How many bytes wait for the client to take them; -1 if it is gone.
    def pending = @engine.socket_pending(@ticket) || -1

    def protocol = :websocket

    # The server's own: it is over.
    def ended(code)
      @close_code = code
    end

    private

    def utf8(text) = Client.send(:utf8, text)
  end

  # The same for a stream of events.
  class EventClient < Client
    # Sends an event. Its data may have several lines.
    def write(data, event: nil, id: nil)
      lines = { "event" => event, "id" => id }.compact.map { |name, value| line(name, value) }
      texts = utf8(data.to_s).split(/\r\n|\r|\n/, -1)
      # Without a line of data a page is told nothing.
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
      raise ArgumentError, "the #{name} of an event has one line" if value.to_s.match?(/[\r\n\0]/)

      "#{name}: #{value}\n"
    end
  end
end
