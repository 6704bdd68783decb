# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # The process that workers are forked from (see `WorkerTemplate`), as the supervisor sees it.
  class TemplateProcess
    # A template does nothing but this: if it takes longer, something is wrong with it.
    ANSWER_SECONDS = 10

    ANSWER_BYTES_MAX = 256

    attr_reader :pid, :orders

    # `worker` has become it.
    def initialize(worker)
      @pid = worker.pid
      @orders = worker.orders
    end

    # Has a worker forked, which gets these descriptors. Its process number; nil if that fails.
    def fork(index, slot, *descriptors)
      rights = Socket::AncillaryData.unix_rights(*descriptors)
      BareSocket.send_message(@orders, "#{index} #{slot}", rights)
      answer = BareSocket.readable?(@orders, ANSWER_SECONDS) && @orders.recv(ANSWER_BYTES_MAX)
      answer.to_s[/\Apid (\d+)\z/, 1]&.to_i
    rescue SystemCallError, IOError
      nil
    end

    # Lets it end.
    def close
      @orders.close unless @orders.closed?
    end
  end
end
