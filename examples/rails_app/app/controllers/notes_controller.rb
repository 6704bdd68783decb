# frozen_string_literal: true

# Notes are left here.
class NotesController < ApplicationController
  def create
    @stop = Stop.find(params[:stop_id])
    @note = @stop.notes.new(params.require(:note).permit(:text))
    if @note.save
      redirect_to @stop
    else
      @notes = @stop.notes.where.not(id: nil).newest_first.limit(20)
      render "stops/show", status: :unprocessable_entity
    end
  end
end
