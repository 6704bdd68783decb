# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # The supervisor's handle of the process from which workers are forked (see `ReforkWorker`).
  class ReforkWorkerHandle
    # The longest time for a response. The process does nothing but fork, so a slower process is
    # stuck.
    RESPONSE_SECONDS = 10

    RESPONSE_BYTES_MAX = 256

    attr_reader :pid, :orders

    # `worker` is the `WorkerProcess` that has become the template.
    def initialize(worker)
      @pid = worker.pid
      @orders = worker.orders
    end

    # Asks the process to fork a worker, which gets `descriptors`. Returns the process number of the
    # worker, or nil on failure.
    def fork(index, table_index, *descriptors)
      rights = Socket::AncillaryData.unix_rights(*descriptors)
      BareSocket.send_message(@orders, "#{index} #{table_index}", rights)
      is_readable = BareSocket.readable?(@orders, RESPONSE_SECONDS)
      response = is_readable && @orders.recv(RESPONSE_BYTES_MAX)
      response.to_s[/\Apid (\d+)\z/, 1]&.to_i
    rescue SystemCallError, IOError
      nil
    end

    # Closes the socket, which makes the process end.
    def close
      @orders.close unless @orders.closed?
    end
  end
end
