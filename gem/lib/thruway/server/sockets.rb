# frozen_string_literal: true

require_relative "client"
require_relative "origins"

module Thruway
  # The connections that applications have upgraded by `rack.upgrade`: WebSockets and streams of
  # server-sent events.
  class Sockets
    # The suffix of a key in the handshake (RFC 6455, section 1.3).
    GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n" \
             "x-accel-buffering: no\r\nconnection: close\r\n"

    WEBSOCKET = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"

    DEFLATE = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"

    # An offer of compression that the server accepts. zlib's window cannot be made smaller.
    OFFER = /\Apermessage-deflate((;(server_no_context_takeover|client_no_context_takeover|
             client_max_window_bits(="?([89]|1[0-5])"?)?|server_max_window_bits="?15"?))*)\z/xi

    # The parameter that the response repeats if the offer contains it (RFC 7692, section 7.1.2.1).
    WINDOW = "; server_max_window_bits=15"

    # Fields that the server sets. Those of the application are dropped.
    OWN = %w[upgrade connection content-length transfer-encoding content-type cache-control
             sec-websocket-accept sec-websocket-extensions].freeze

    # The methods of a handler, in the order of the engine's event numbers.
    METHODS = %i[on_open on_message on_drained on_shutdown on_close].freeze

    OPENED, MESSAGE, _, _, ENDED = *0..4

    INTERNAL_ERROR = 1011

    # The block is called with an exception of a handler, and the request's environment.
    def initialize(engine, settings, &report)
      @engine = engine
      @origins = Origins.new(settings.socket_origins)
      @compresses = settings.socket_compression
      @report = report
      @clients = {}
    end

    # Upgrades a connection. Returns nil, or the response to send if the page's origin is refused.
    def upgrade(ticket, env, headers, handler)
      is_websocket = env["rack.upgrade?"] == :websocket
      return forbidden if is_websocket && !origin_allowed?(env, handler)

      deflate = offered_compression(env) if is_websocket && @compresses
      head = is_websocket ? websocket_head(env, deflate) : EVENTS
      client = (is_websocket ? Client : EventClient).new(@engine, ticket, env, handler)
      number = ticket.unpack1("x8Q")
      @clients[number] = client
      is_there = @engine.upgrade(ticket, "#{head}#{fields(headers)}\r\n", is_websocket,
                                 !deflate.nil?, handler.respond_to?(:on_drained))
      @clients.delete(number) unless is_there
      nil
    end

    # Calls the handler's method for an event. The engine reports one event of a client at a time.
    def event(number, kind, data)
      client = kind == ENDED ? @clients.delete(number) : @clients[number]
      return unless client

      client.ended(data) if kind == ENDED
      method = METHODS[kind]
      return if kind != MESSAGE && !client.handler.respond_to?(method)

      call(client, method, kind == MESSAGE ? [data] : [])
    end

    def size = @clients.size

    private

    def call(client, method, arguments)
      client.handler.public_send(method, client, *arguments)
    rescue Exception => e # rubocop:disable Lint/RescueException
      # As in a request, neither `exit` nor a stack overflow may end a thread of the server.
      @report.call(e, client.env)
      client.close(INTERNAL_ERROR)
    end

    # Whether the page's origin may open the WebSocket. Browsers let any page open a WebSocket with
    # the user's cookies, so the server checks the origin, unless the handler does, such as
    # ActionCable's.
    def origin_allowed?(env, handler)
      checks = handler.respond_to?(:checks_origin?) && handler.checks_origin?
      checks || @origins.allow?(env)
    end

    def forbidden
      [403, { "content-type" => "text/plain; charset=utf-8" },
       ["403 Forbidden: pages of this origin may not open a WebSocket here\n"]]
    end

    def websocket_head(env, deflate)
      require "digest"
      accept = Digest::SHA1.base64digest("#{env["HTTP_SEC_WEBSOCKET_KEY"]}#{GUID}")
      extensions = "sec-websocket-extensions: #{deflate}\r\n" if deflate
      "#{WEBSOCKET}sec-websocket-accept: #{accept}\r\n#{extensions}"
    end

    # The response to the first acceptable offer of compression; nil if there is none.
    def offered_compression(env)
      offers = env["HTTP_SEC_WEBSOCKET_EXTENSIONS"].to_s.delete(" \t").split(",")
      offer = offers.grep(OFFER).first or return
      offer.match?(/server_max_window_bits/i) ? DEFLATE + WINDOW : DEFLATE
    end

    # The application's fields in the response, such as the subprotocol and cookies.
    def fields(headers)
      lines = headers.flat_map do |name, values|
        next [] if OWN.include?(name.to_s.downcase) || name.to_s.start_with?("rack.")

        Array(values).flat_map { |value| value.to_s.split("\n") }.map { |text| "#{name}: #{text}" }
      end
      lines.map(&:b).grep(Server::FIELD).map { |text| "#{text}\r\n" }.join
    end
  end
end
