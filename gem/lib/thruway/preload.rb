# frozen_string_literal: true

module Thruway
  # What an application does itself around the forks of a booted template. Rails' own hooks for
  # forks are run anyway. Without a template these blocks are never called. See
  # docs/reference/verbs/preload.md.
  module Preload
    @before = []
    @after = []

    class << self
      # Called in the template before each fork: to give up what a child must not share.
      def before_fork(&block) = @before << block

      # Called in each child before the command begins: to make such things anew.
      def after_fork(&block) = @after << block

      # :nodoc:
      def run_before_fork = @before.each(&:call)

      # :nodoc:
      def run_after_fork = @after.each(&:call)
    end
  end
end
