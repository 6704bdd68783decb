# frozen_string_literal: true

require_relative "../server/client"

module Thruway
  module Cable
    # Adapts a WebSocket of the server to the interface that ActionCable's connections use, and
    # handles its events.
    class Socket
      # The `Thruway::Client`, from the first event on.
      attr_reader :client, :protocol

      def initialize(env, connection, protocols)
        @env = env
        @connection = connection
        asked = env["HTTP_SEC_WEBSOCKET_PROTOCOL"].to_s.split(/\s*,\s*/)
        @protocol = asked.find { |protocol| protocols.include?(protocol) }
        @alive = false
      end

      def rack_response
        @env["rack.upgrade"] = self
        [101, @protocol ? { "sec-websocket-protocol" => @protocol } : {}, []]
      end

      # ActionCable has its own list of origins.
      def checks_origin? = true

      def alive? = @alive

      def transmit(message)
        return false unless @alive

        @client.write(message.is_a?(Array) ? message.pack("C*") : message.to_s)
      end

      def close(code = nil, reason = nil)
        @alive = false
        @client&.close(code || 1000, reason || "")
      end

      def on_open(client)
        @client = client
        @alive = true
        @connection.on_open
      end

      def on_message(_client, data)
        @connection.on_message(data) if @alive
      end

      # Called when the server is about to stop. Tells the client to reconnect, which Rails' client
      # does after a random delay.
      def on_shutdown(client)
        types, reasons = ActionCable::INTERNAL.values_at(:message_types, :disconnect_reasons)
        message = { type: types[:disconnect], reason: reasons[:server_restart], reconnect: true }
        client.write(ActiveSupport::JSON.encode(message))
      end

      def on_close(client)
        @alive = false
        @connection.on_close("", client.close_code)
      end
    end
  end
end
