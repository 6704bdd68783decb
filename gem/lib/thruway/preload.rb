# frozen_string_literal: true

module Thruway
  # What an application does itself around the forks of a booted template. Rails' own hooks for
  # forks are run anyway. Without a template these blocks are never called. See
  # docs/reference/verbs/preload.md.
  module Preload
    @before = []
    @after = []
    @excluded = []

    class << self
      # :nodoc:
      attr_reader :excluded

      # Called in the template before each fork: to give up what a child must not share.
      def before_fork(&block) = @before << block

      # Called in each child before the command begins: to make such things anew.
      def after_fork(&block) = @after << block

      # Files and folders whose changes do not matter, though the boot asks about them.
      def exclude(*paths) = @excluded.concat(paths.map(&:to_s))

      # :nodoc:
      def run_before_fork = @before.each(&:call)

      # :nodoc:
      def run_after_fork = @after.each(&:call)
    end
  end
end
